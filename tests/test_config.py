import dataclasses
import string
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mpisign
from mpisign.config import (
    SECTIONS,
    AdversaryConfig,
    AlgorithmConfig,
    Config,
    FailuresConfig,
    NetworkConfig,
    ProblemConfig,
    RunConfig,
    parse_partition,
)
from mpisign.errors import ConfigError
from mpisign.options import parse, to_toml

FIELDS = [entry for section in SECTIONS.values() for entry in dataclasses.fields(section)]


def mistake(*argv):
    """Return the one line that a wrong command line is answered with."""
    with pytest.raises(ConfigError) as caught:
        parse(argv)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def toml(tmp_path):
    def write(text):
        file = tmp_path / "run.toml"
        file.write_text(text, "utf-8")
        return str(file)

    return write


# Flags


def test_an_empty_command_line_gives_the_defaults():
    assert parse([]) == Config()


def test_flags_reach_their_fields():
    line = (
        "--task mnist --model lenet --data d --partition dirichlet:0.5 --algorithm sgd --lr 1e-3 --momentum 0.5 "
        "--nesterov --weight-decay 0.1 --trust 0.02 --norm carry --vote sharded --overlap --tie abstain --zero plus "
        "--topology chain:5 --delay overlapped --fill own --local adam --correction --strength 0.5 --rounds 3 "
        "--message-loss 0.1 --epochs 3 --steps 7 --batch-size 8 "
        "--schedule step:3 --warm-up 2 --dedicated-server --seed 9 --device cuda --cuda-aware probe --simulate 5 "
        "--output o --overwrite "
        "--batches split --checkpoint-every 50 --checkpoints-kept 3 --resume auto --log tensorboard "
        "--attack stale --byzantine ranks:1,3 --timeout 60 --lost-data redistribute --respawn --inject nan:rank=1,step=2 "
        "--quorum 0.5 --patience 7 --late count --respawn-momentum checkpoint"
    )
    config = parse(line.split())
    assert config == Config(
        ProblemConfig("mnist", "lenet", Path("d"), "dirichlet:0.5"),
        AlgorithmConfig("sgd", 1e-3, 0.5, True, 0.1, 0.02, "carry", "sharded", True, "abstain", "plus"),
        NetworkConfig("chain:5", "overlapped", "own", "adam", True, 0.5, 3, 0.1),
        RunConfig(
            3, 7, 8, 9, "cuda", "probe", 5, Path("o"), True, "step:3", 2.0, True, "split", 50, 3, "auto", "tensorboard"
        ),
        AdversaryConfig("stale", "ranks:1,3"),
        FailuresConfig(60.0, "redistribute", "nan:rank=1,step=2", 0.5, 7.0, "count", True, "checkpoint"),
    )


def test_every_field_carries_a_flag_of_its_name_and_a_remark():
    names = [entry.name for entry in FIELDS]
    assert len(set(names)) == len(names)
    for entry in FIELDS:
        assert entry.metadata["flag"] == "--" + entry.name.replace("_", "-")
        assert entry.metadata["remark"]


def test_underscores_do_as_well_as_dashes():
    assert parse(["--batch_size", "3", "--weight_decay=0.5"]) == parse(["--batch-size", "3", "--weight-decay", "0.5"])


def test_underscores_of_values_stay():
    assert parse(["--output=a_b", "--task=my_file.py:My_task"]).run.output == Path("a_b")


def test_booleans_have_a_negative_flag(toml):
    file = toml("[run]\noverwrite = true\n")
    assert parse(["--config", file]).run.overwrite
    assert not parse(["--config", file, "--no-overwrite"]).run.overwrite


def test_the_last_of_two_equal_flags_counts():
    assert parse(["--seed", "1", "--seed", "2"]).run.seed == 2


def test_the_home_folder_may_be_written_as_a_tilde():
    assert parse(["--data", "~/data"]).problem.data == Path.home() / "data"


def test_things_outside_the_package_pass():
    assert parse(["--algorithm", "my_file.py:Mine"]).algorithm.algorithm == "my_file.py:Mine"


def test_an_unknown_flag_is_answered_with_the_nearest():
    assert mistake("--batchsize", "3").startswith("--batchsize: no such option (did you mean '--batch-size'?)")


def test_flags_are_not_abbreviated():
    assert mistake("--epoch", "3").startswith("--epoch: no such option (did you mean '--epochs'?)")


def test_a_stray_word_is_named():
    assert mistake("digits").startswith("digits: unexpected; every setting is a flag")


def test_a_flag_without_its_value_is_named():
    assert mistake("--lr").startswith("--lr: expected one argument")


@pytest.mark.parametrize(
    "argv, answer",
    [
        ("--epochs ten", "--epochs ten: wanted a whole number"),
        ("--epochs 1.5", "--epochs 1.5: wanted a whole number"),
        ("--epochs 0", "--epochs 0: wanted a whole number of at least 1"),
        ("--steps 0", "--steps 0: wanted a whole number of at least 1"),
        ("--batch-size 0", "--batch-size 0: wanted a whole number of at least 1"),
        ("--simulate 0", "--simulate 0: wanted a whole number of at least 1"),
        ("--seed -1", "--seed -1: wanted a whole number from 0 to 2^63 - 1"),
        ("--seed 9223372036854775808", "--seed 9223372036854775808: wanted a whole number from 0 to 2^63 - 1"),
        ("--lr fast", "--lr fast: wanted a number"),
        ("--lr 0", "--lr 0: wanted a finite number above 0"),
        ("--lr -1", "--lr -1: wanted a finite number above 0"),
        ("--lr nan", "--lr nan: wanted a finite number above 0"),
        ("--lr inf", "--lr inf: wanted a finite number above 0"),
        ("--momentum 1", "--momentum 1: wanted a number in [0, 1)"),
        ("--momentum -0.1", "--momentum -0.1: wanted a number in [0, 1)"),
        ("--momentum nan", "--momentum nan: wanted a number in [0, 1)"),
        ("--weight-decay -1", "--weight-decay -1: wanted a finite number of at least 0"),
        ("--tie coim", "--tie coim: no such choice (did you mean 'coin'?); wanted coin or plus or abstain"),
        ("--zero never", "--zero never: no such choice; wanted coin or plus or abstain"),
        ("--task digit", "--task digit: no such task (did you mean 'digits'?); known are cifar10, digits"),
        ("--model mpl", "--model mpl: no such model (did you mean 'mlp'?); known are"),
        ("--vote sever", "--vote sever: no such vote (did you mean 'server'?); known are"),
        ("--device tpu", "--device tpu: no such device; wanted cpu, cuda"),
        ("--cuda-aware probe", "--cuda-aware probe: nothing is in a GPU's memory; give --device cuda, too"),
        ("--partition by-class", "--partition by-class: no such partition (did you mean 'by_class'?); known are"),
        ("--partition dirichlet", "--partition dirichlet: wanted dirichlet:ALPHA with a finite ALPHA above 0"),
        ("--partition dirichlet:0", "--partition dirichlet:0: wanted dirichlet:ALPHA"),
        ("--partition dirichlet:inf", "--partition dirichlet:inf: wanted dirichlet:ALPHA"),
        ("--partition dirichlet:x", "--partition dirichlet:x: wanted dirichlet:ALPHA"),
        ("--partition iid:3", "--partition iid:3: iid takes no number"),
        ("--codec qsdg:4", "--codec qsdg:4: no such codec (did you mean 'qsgd'?); known are bfloat16"),
        ("--codec qsgd", "--codec qsgd: wanted qsgd:LEVELS or qsgd:LEVELS:max"),
        ("--codec qsgd:0", "--codec qsgd:0: wanted qsgd:LEVELS"),
        ("--codec qsgd:4:l1", "--codec qsgd:4:l1: wanted qsgd:LEVELS"),
        ("--codec qsgd:4.5", "--codec qsgd:4.5: wanted qsgd:LEVELS"),
        ("--codec topk:0", "--codec topk:0: wanted topk:SHARE with a SHARE above 0 and at most 1"),
        ("--codec topk:nan", "--codec topk:nan: wanted topk:SHARE"),
        ("--codec float16:2", "--codec float16:2: wanted float16 alone, it takes no argument"),
        ("--aggregator krum", "--aggregator krum: wanted krum:LIARS"),
        ("--aggregator krum:-1", "--aggregator krum:-1: wanted krum:LIARS"),
        ("--aggregator trimmed_mean:0.5", "--aggregator trimmed_mean:0.5: wanted trimmed_mean:SHARE"),
        ("--aggregator medain", "--aggregator medain: no such aggregator (did you mean 'median'?)"),
        ("--tie a\0b", "--tie 'a\\x00b': no such choice"),
        ("--output=", "--output '': wanted text that is not empty"),
        ("--nesterov --algorithm sgd --momentum 0", "--nesterov: needs a --momentum above 0"),
        ("--late count", "--late count: nobody is late without a quorum"),
        ("--respawn-momentum checkpoint", "--respawn-momentum checkpoint: nobody is replaced without --respawn"),
        (
            "--respawn --respawn-momentum checkpoint",
            "--respawn-momentum checkpoint: there will be none; give --checkpoint-every",
        ),
        ("--config no/such.toml", "--config no/such.toml: can't read it (No such file or directory)"),
    ],
)
def test_a_mistake_says_what_came_and_what_was_wanted(argv, answer):
    assert mistake(*argv.split()).startswith(answer)


def test_codecs_and_aggregators_take_arguments_and_those_of_the_users_own_take_any():
    line = "--codec qsgd:4:max --two-way --aggregator my_file.py:mine:a:7 --algorithm adam"
    chosen = parse(line.split()).algorithm
    assert (chosen.codec, chosen.two_way, chosen.aggregator) == ("qsgd:4:max", True, "my_file.py:mine:a:7")
    assert mpisign.registry.split("aggregator", chosen.aggregator) == ("my_file.py:mine", ["a", 7])


@pytest.mark.parametrize("flag", ["--help", "-h", "--version"])
def test_help_and_version_print_and_leave_with_0(flag, capsys):
    with pytest.raises(SystemExit) as caught:
        parse([flag])
    assert caught.value.code == 0
    assert "mpisign" in capsys.readouterr().out


def test_help_shows_every_flag_and_default(capsys):
    with pytest.raises(SystemExit):
        parse(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    for entry in FIELDS:
        assert f"{entry.metadata['flag']} " in shown.replace(",", " ")
        if entry.default is not None and not isinstance(entry.default, bool):
            assert f"(default: {entry.default})" in shown
    assert "examples:" in shown


def test_version_is_the_packages(capsys):
    with pytest.raises(SystemExit):
        parse(["--version"])
    assert capsys.readouterr().out == f"mpisign {mpisign.__version__}\n"


def test_parsing_imports_nothing_heavy():
    heavy = "{'torch', 'numpy', 'numba', 'mpi4py', 'sklearn', 'tomli_w'}"
    program = f"import sys, mpisign.options; mpisign.options.parse([]); sys.exit(bool({heavy} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(mpisign.__file__).parents[1])


# Constructors


def test_constructors_check_as_flags_do():
    with pytest.raises(ConfigError, match="epochs=0: wanted a whole number of at least 1"):
        RunConfig(epochs=0)
    with pytest.raises(ConfigError, match="epochs=True: wanted a whole number"):
        RunConfig(epochs=True)
    with pytest.raises(ConfigError, match="lr='fast': wanted a number"):
        AlgorithmConfig(lr="fast")
    with pytest.raises(ConfigError, match="task=None: wanted text"):
        ProblemConfig(task=None)


def test_constructors_convert_to_the_type_of_the_field():
    assert type(AlgorithmConfig(lr=1).lr) is float
    assert RunConfig(output="o").output == Path("o")


def test_a_config_is_frozen_and_can_be_a_key():
    config = Config()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.run.epochs = 3
    assert {config: 1}[Config()] == 1


# Partition


def test_a_partition_is_split_into_kind_and_number():
    assert parse_partition("iid") == ("iid", None)
    assert parse_partition("by_class") == ("by_class", None)
    assert parse_partition("dirichlet:1e-1") == ("dirichlet", 0.1)
    assert parse_partition("a/my_file.py:mine") == ("a/my_file.py:mine", None)
    assert parse_partition("module:mine:2") == ("module:mine", 2.0)


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "iid:",
        "dirichlet",
        "dirichlet:",
        "dirichlet:nan",
        "dirichlet:-1",
        "dirichlet:x",
        "dirichlet:1:2",
        "by_class:x",
        "Iid",
        "a:b:c",
        "x:1",
    ],
)
def test_other_partitions_are_refused(spec):
    with pytest.raises(ConfigError, match="--partition"):
        parse_partition(spec)


# TOML


def test_a_file_is_read_and_flags_override_it(toml):
    file = toml("[algorithm]\nlr = 1\n[run]\nepochs = 3\nseed = 4\n")
    config = parse(["--epochs", "5", "--config", file])
    assert (config.algorithm.lr, config.run.epochs, config.run.seed) == (1.0, 5, 4)


def test_keys_may_stand_outside_their_table(toml):
    file = toml('algorithm = "sgd"\nbatch_size = 7\n[problem]\ntask = "mnist"\n')
    config = parse(["--config", file])
    assert (config.algorithm.algorithm, config.run.batch_size, config.problem.task) == ("sgd", 7, "mnist")


@pytest.mark.parametrize(
    "text, answer",
    [
        ("[run]\nepoch = 3", "run.toml: no such key 'epoch' in [run] (did you mean 'epochs'?)"),
        ("batchsize = 3", "run.toml: no such key 'batchsize' (did you mean 'batch_size'?)"),
        ("[runs]\nepochs = 3", "run.toml: no such table [runs] (did you mean 'run'?); wanted [problem], [algorithm]"),
        ("[run]\nlr = 3", "run.toml: lr stands in [run]; move it to [algorithm]"),
        ("epochs = 1\n[run]\nepochs = 2", "run.toml: epochs is set twice, in [run] and at the top; keep one"),
        ("[[run]]\nepochs = 3", "run.toml: [[run]] makes a list of tables; wanted one, [run]"),
        ("[[algorithm]]\nlr = 3", "run.toml: [[algorithm]] makes a list of tables; wanted one, [algorithm]"),
        ("run = 3", "run.toml: run = 3: run is a table; write [run] and its keys below"),
        ("epochs = 20.0", "run.toml: epochs = 20.0: wanted a whole number"),
        ("epochs = 'ten'", "run.toml: epochs = 'ten': wanted a whole number"),
        ("epochs = true", "run.toml: epochs = true: wanted a whole number"),
        ("lr = true", "run.toml: lr = true: wanted a number"),
        ("lr = nan", "run.toml: lr = nan: wanted a finite number above 0"),
        (f"lr = 1{'0' * 400}", "run.toml: lr = 1000"),
        ("nesterov = 1", "run.toml: nesterov = 1: wanted true or false"),
        ("task = 3", "run.toml: task = 3: wanted text"),
        ("output = 3", "run.toml: output = 3: wanted text"),
        ("tie = ['coin']", "run.toml: tie = ['coin']: no such choice (did you mean 'coin'?)"),
        ("task = 'digit'", "run.toml: task = 'digit': no such task (did you mean 'digits'?)"),
        ("partition = 'dirichlet'", "run.toml: partition = 'dirichlet': wanted dirichlet:ALPHA"),
        ("device = 'tpu'", "run.toml: device = 'tpu': no such device"),
        ("epochs = = 2", "run.toml: not a TOML file (Invalid value (at line 1, column 10))"),
    ],
)
def test_a_mistake_in_a_file_names_file_and_key(toml, text, answer):
    assert answer in mistake("--config", toml(text))


def test_a_file_that_is_no_text_is_refused(tmp_path):
    file = tmp_path / "run.toml"
    file.write_bytes(b"\xff\xfe")
    assert "not a TOML file" in mistake("--config", str(file))


def test_a_folder_is_no_file(tmp_path):
    assert "can't read it (Is a directory)" in mistake("--config", str(tmp_path))


def test_defaults_written_to_toml_leave_none_out():
    text = to_toml(Config())
    assert '[problem]\ntask = "digits"\npartition = "iid"\n' in text
    assert "steps" not in text


names = st.sampled_from(["my_file.py:Mine", "a.b:c", "folder with space/ü.py:Überthing"])
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: not text.startswith("~")
)
paths = st.none() | texts.map(Path)
counts = st.integers(1, 2**63 - 1)
positive = st.floats(0, exclude_min=True, allow_infinity=False, allow_nan=False)
alphas = positive.map(lambda alpha: f"dirichlet:{alpha!r}")
configs = st.builds(
    Config,
    st.builds(
        ProblemConfig,
        st.sampled_from(["digits", "mnist"]) | names,
        st.none() | st.sampled_from(["mlp", "lenet"]) | names,
        paths,
        st.sampled_from(["iid", "by_class", "my_file.py:mine:0.5"]) | alphas,
    ),
    st.builds(
        AlgorithmConfig,
        st.just("sgd") | names,
        st.none() | positive,
        st.floats(0, 1, exclude_max=True, exclude_min=True),
        st.booleans(),
        st.floats(0, allow_infinity=False, allow_nan=False),
        st.none() | positive,
        st.sampled_from(["none", "carry"]),
        st.just("server") | names,
        st.booleans(),
        st.sampled_from(["coin", "plus", "abstain"]),
        st.sampled_from(["coin", "plus"]),
    ),
    st.builds(
        NetworkConfig,
        st.none() | st.sampled_from(["chain:5", "file:edges.txt"]),
        st.sampled_from(["synchronous", "overlapped"]),
        st.sampled_from(["initial", "counts", "own", "refresh"]),
        st.sampled_from(["sgd", "damped", "adam"]),
        st.booleans(),
        st.none() | positive,
        st.none() | counts,
        st.floats(0, 1, exclude_max=True),
    ),
    st.builds(
        RunConfig,
        counts,
        st.none() | counts,
        counts,
        st.integers(0, 2**63 - 1),
        st.just("cpu"),
        st.just("no"),
        st.none() | counts,
        paths,
        st.booleans(),
        st.sampled_from(["constant", "cosine", "step:3", "step:1,20"]),
        st.floats(0, allow_infinity=False, allow_nan=False),
        st.booleans(),
    ),
    st.just(AdversaryConfig())
    | st.builds(
        AdversaryConfig,
        st.sampled_from(["invert", "nan"]) | names,
        st.sampled_from(["3", "0.4", "ranks:1,3"]),
    ),
)


@settings(deadline=None)  # each example writes a file
@given(config=configs)
def test_toml_gives_back_what_was_written(config, tmp_path_factory):
    file = tmp_path_factory.mktemp("toml") / "run.toml"
    file.write_text(to_toml(config), "utf-8")
    assert parse(["--config", str(file)]) == config


def test_the_letters_of_a_path_survive(toml):
    config = Config(run=RunConfig(output=Path(string.printable)))
    assert parse(["--config", toml(to_toml(config))]) == config
