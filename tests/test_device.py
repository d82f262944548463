"""GPUs: which rank takes which, how ballots get to MPI, what a probe finds, and whole steps; without one, and with one."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from fake_cuda import HOST, FakeBlock, FakeCuda, Race
from running import configured

from mpisign import devices, kernels
from mpisign.algorithms.lion import Lion
from mpisign.algorithms.signum import SignSGD, Signum
from mpisign.algorithms.ssdm import SSDM
from mpisign.algorithms.weights import checksum
from mpisign.assembly import choose_algorithm
from mpisign.attacks import Honest
from mpisign.collectives.staged import StagedVote
from mpisign.comm import awareness, probing, simulate
from mpisign.comm.awareness import Answer
from mpisign.comm.buffers import DeviceMessages, Staging
from mpisign.config import RunConfig
from mpisign.environment import Launch
from mpisign.errors import ConfigError, EnvironmentProblem, ParameterError
from mpisign.options import parse
from mpisign.testing.odd_model import give_gradients, odd_model
from mpisign.timing import Stopwatch
from mpisign.train import _on_devices, main

HERE = Path(__file__).parent


# ---- which rank takes which


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[int]]:
    """Let torch see so many GPUs; returns what `set_device` was called with."""

    def show(count: int) -> list[int]:
        chosen: list[int] = []
        monkeypatch.setattr(torch.version, "cuda", "12.9")
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: chosen[-1])
        monkeypatch.setattr(devices.importlib.util, "find_spec", lambda name: object())
        return chosen

    return show


def started(rank: int, local_rank: int | None, local_size: int | None = None) -> Launch:
    return Launch("mpich", rank, 8, local_rank, local_size)


@pytest.mark.parametrize(
    "wanted, count, rank, local_rank, taken",
    [("cuda", 4, 6, 2, 2), ("cuda", 2, 7, 3, 1), ("cuda", 1, 5, 5, 0), ("cuda", 4, 6, None, 2), ("cuda:1", 2, 0, 0, 1)],
)
def test_a_rank_takes_the_gpu_of_its_number_on_its_host(
    gpus: Callable[[int], list[int]], wanted: str, count: int, rank: int, local_rank: int | None, taken: int
) -> None:
    chosen = gpus(count)
    choice = devices.choose(wanted, started(rank, local_rank))
    assert (choice.name, choice.problem, chosen) == (f"cuda:{taken}", "", [taken])
    choice.check()
    assert devices.current(wanted) == torch.device("cuda", taken)


def test_more_ranks_than_gpus_is_said_and_allowed(gpus: Callable[[int], list[int]]) -> None:
    gpus(2)
    assert devices.choose("cuda", started(0, 0, 4)).remark.startswith("4 ranks on this host share 2 GPUs")
    assert devices.choose("cuda:0", started(0, 0, 4)).remark.startswith("4 ranks on this host share the only GPU")
    assert devices.choose("cuda", started(0, 0, 2)).remark == ""
    assert devices.choose("cpu", started(0, 0, 4)) == devices.Choice("cpu")


@pytest.mark.parametrize(
    "arrange, wanted, said",
    [
        (lambda patch: patch.setattr(torch.version, "cuda", None), "cuda", "was built without CUDA"),
        (lambda patch: patch.setattr(torch.cuda, "device_count", lambda: 0), "cuda", "torch sees no GPU"),
        (lambda patch: patch.setenv("CUDA_VISIBLE_DEVICES", "9"), "cuda:3", "sees 2 GPUs with CUDA_VISIBLE_DEVICES=9"),
        (lambda patch: patch.setattr(devices.importlib.util, "find_spec", lambda _: None), "cuda", "need numba-cuda"),
    ],
)
def test_what_is_missing_is_named(
    gpus: Callable[[int], list[int]],
    monkeypatch: pytest.MonkeyPatch,
    arrange: Callable[[pytest.MonkeyPatch], None],
    wanted: str,
    said: str,
) -> None:
    gpus(2)
    arrange(monkeypatch)
    choice = devices.choose(wanted, started(0, 0))
    assert said in choice.problem
    assert "use --device cpu" in choice.problem
    for attempt in (choice.check, lambda: devices.current(wanted)):
        with pytest.raises(EnvironmentProblem, match=re.escape(said)):
            attempt()


def test_a_gpu_that_another_process_keeps_for_itself_is_a_problem(
    gpus: Callable[[int], list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus(1)

    def busy(index: int) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nmore")

    monkeypatch.setattr(torch.cuda, "set_device", busy)
    assert "cuda:0 can't be used (CUDA error: all CUDA-capable devices" in devices.choose("cuda", started(0, 0)).problem


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_asking_for_a_gpu_where_there_is_none_is_one_line_and_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--device", "cuda", "--simulate", "2", "--steps", "1"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("mpisign.train: --device cuda: ")
    assert line.count("\n") == 1


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_under_mpirun_it_is_one_line_for_all_ranks(mpirun: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = mpirun(2, "-m", "mpisign.train", "--device", "cuda", "--cuda-aware", "probe", "--steps", "1")
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("mpisign.train: --device cuda: ") == 1


@pytest.mark.parametrize("device", ["tpu", "cuda:", "cuda:-1", "cuda:x", "mps", "xpu:0"])
def test_other_devices_are_refused(device: str) -> None:
    with pytest.raises(ConfigError, match="no such device; wanted cpu, cuda"):
        parse(["--device", device])


def test_awareness_of_gpu_memory_needs_a_gpu() -> None:
    assert parse(["--device", "cuda", "--cuda-aware", "probe"]).run.cuda_aware == "probe"
    with pytest.raises(ConfigError, match="nothing is in a GPU's memory"):
        parse(["--cuda-aware", "probe"])


# ---- parameters


def there(*names: str) -> list[Any]:
    """Parameters that say that they are on those devices."""
    plain = {"is_floating_point": lambda: True, "dtype": torch.float32, "layout": torch.strided}
    return [SimpleNamespace(**plain, device=torch.device(name)) for name in names]


@pytest.mark.parametrize(
    "kind, names, said",
    [
        (Signum, ["mps"], "is on mps: move the model to the CPU or to a GPU of CUDA"),
        (Signum, ["cuda:0", "cuda:1"], "parameter 1 is on cuda:1, parameter 0 on cuda:0: move the model to one device"),
        (Lion, ["cpu", "cuda:0"], "parameter 1 is on cuda:0, parameter 0 on cpu"),
        (SSDM, ["cuda:0"], "SSDM doesn't work: move the model to the CPU, or use Signum, SignSGD, Lion, SGD or Adam"),
    ],
)
def test_parameters_are_on_one_device_that_the_algorithm_knows(kind: Any, names: list[str], said: str) -> None:
    optimizer = kind.__new__(kind)
    optimizer.param_groups = [{"params": there(*names)}]
    with pytest.raises(ParameterError, match=re.escape(said)):
        [optimizer._check_device(index, p.device) for index, p in enumerate(optimizer.parameters)]


def test_sign_votes_do_work_there() -> None:
    for kind in (Signum, SignSGD, Lion):
        optimizer: Any = kind.__new__(kind)
        optimizer.param_groups = [{"params": there("cuda:1", "cuda:1")}]
        optimizer._check_device(1, torch.device("cuda", 1))


# ---- who waits for whom


class FakeVote:
    """The host reads the ballot, and writes the verdict."""

    def __init__(self, gpu: FakeCuda) -> None:
        self.watch, self.verdict = Stopwatch(), SimpleNamespace(message=FakeBlock(gpu, "the vote's verdict", False))

    def __call__(self, ballot: FakeBlock, step: int) -> Any:
        ballot.touch(HOST)
        self.verdict.message.touch(HOST, writes=True)
        return self.verdict


def three_steps(gpu: FakeCuda, monkeypatch: pytest.MonkeyPatch, buckets: int = 2) -> list[StagedVote]:
    """Pack, vote and descend as Signum does, in several buckets: all are under way before the first is waited for."""
    stub: Any = ModuleType("mpisign.kernels.cuda")
    stub.Landed = lambda found, device: SimpleNamespace(message=FakeBlock(gpu, "the device's verdict", True))
    monkeypatch.setitem(sys.modules, "mpisign.kernels.cuda", stub)
    monkeypatch.setattr(kernels, "cuda", stub, raising=False)
    made = iter(range(100))
    staging: Any = Staging(
        torch.device("cuda", 0),
        gpu,
        lambda numel, dtype: FakeBlock(gpu, f"pinned {next(made)}", False),  # type: ignore[arg-type, return-value]
    )
    ballots = [FakeBlock(gpu, "the ballot", True) for _ in range(buckets)]
    votes = [StagedVote(FakeVote(gpu), ballot, staging) for ballot in ballots]  # type: ignore[arg-type]
    for step in range(3):
        waiting = []
        for ballot, vote in zip(ballots, votes, strict=True):
            ballot.touch("main", writes=True)  # packed
            waiting.append(vote.begin(step))
        landings = [decide() for decide in waiting]
        for ballot, land in zip(ballots, landings, strict=True):
            verdict: Any = land()
            verdict.message.touch("main")  # descent
            ballot.touch("main")  # disagreement
    return votes


@pytest.mark.parametrize("buckets", [1, 3])
def test_ballots_and_verdicts_are_never_used_while_they_are_copied(
    monkeypatch: pytest.MonkeyPatch, buckets: int
) -> None:
    gpu = FakeCuda()
    votes = three_steps(gpu, monkeypatch, buckets)
    assert gpu.waits.count("host") == 3 * buckets  # once a ballot, before MPI reads it, and for nothing else
    for vote in votes:
        assert {*vote._ballot.recorded, *vote.verdict.message.recorded} == {"side 1"}  # type: ignore[attr-defined]


@pytest.mark.parametrize("deaf", ["host", "side", "main"])
def test_whoever_forgets_to_wait_is_found_out(monkeypatch: pytest.MonkeyPatch, deaf: str) -> None:
    with pytest.raises(Race):
        three_steps(FakeCuda(deaf=(deaf,)), monkeypatch)


def test_numbers_for_a_report_are_copied_beside_and_waited_for_when_they_are_read() -> None:
    gpu = FakeCuda()
    block: Any = FakeBlock(gpu, "numbers", True)
    block.reshape, block.numel = lambda *_: block, lambda: 4
    host: Any = FakeBlock(gpu, "pinned", False)
    staging = Staging(torch.device("cuda", 0), gpu, lambda numel, dtype: host)
    block.touch("main", writes=True)
    read = staging.fetch(block)
    assert gpu.waits == ["side 1"]
    with pytest.raises(Race):
        host.touch(HOST)
    read()
    host.touch(HOST)
    assert gpu.waits == ["side 1", "host"]


def on_the_cpu(*flags: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:xdist", *flags, str(HERE / "device_on_the_cpu.py")],
        cwd=HERE.parent,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    assert re.search(r"^\d+ passed(?!.*skipped)", done.stdout, re.MULTILINE), done.stdout


def test_whole_steps_have_the_bits_of_the_cpu_under_the_simulator() -> None:
    on_the_cpu("-m", "not slow")


@pytest.mark.slow
def test_whole_steps_of_all_that_work_on_a_gpu_have_the_bits_of_the_cpu() -> None:
    on_the_cpu("-m", "slow")


# ---- addresses for MPI


def test_a_simulated_rank_takes_no_addresses() -> None:
    def refused(comm: Any) -> None:
        with pytest.raises(TypeError, match="not to a SimulatedComm"):
            DeviceMessages(comm)

    simulate(1, refused)


@pytest.mark.parametrize(
    "flags, said",
    [
        ("--algorithm sgd", "--algorithm sgd"),
        ("--vote tree", "--vote tree"),
        ("--overlap", "--overlap"),
        ("--quarantine 0.01", "--quarantine"),
        ("--simulate 2", "--simulate"),
    ],
)
def test_what_does_not_go_with_addresses_is_named(flags: str, said: str) -> None:
    config = parse(["--device", "cuda", "--cuda-aware", "yes", *flags.split()])

    def choose(comm: Any) -> None:
        with pytest.raises(ConfigError, match=re.escape(f"not with {said}")):
            choose_algorithm(comm, config, Honest, Honest(0, (), 1, 0))

    simulate(1, choose)


def test_an_attack_on_ballots_stays_on_the_cpu() -> None:
    from mpisign.overhearing import ALIESign

    config = parse(["--device", "cuda", "--attack", "alie_sign", "--byzantine", "1"])

    def choose(comm: Any) -> None:
        with pytest.raises(ConfigError, match="ballots, which are looked at on the CPU only"):
            choose_algorithm(comm, config, ALIESign, ALIESign(0, (0,), 2, 0))

    simulate(1, choose)


AWARE = """
import sys
import numpy as np, torch
sys.path.insert(0, {tests!r})
from fake_cuda import FakeCuda, pinned
from mpisign import kernels
from mpisign.algorithms import base
from mpisign.algorithms.signum import Signum
from mpisign.algorithms.weights import checksum
from mpisign.comm import world
from mpisign.comm.buffers import Staging
from mpisign.kernels import cuda

comm, sums, sent, ways = world(), [], [], []
for aware in (False, True):
    if aware:  # MPI takes addresses of the CPU's memory as it would a GPU's
        base.staging_for = lambda device: Staging(device, FakeCuda(), pinned)
        torch.Tensor.record_stream = lambda self, stream: None
        plain = kernels.NOTHING_KEPT
        kernels.sign_ballot = lambda *rest: cuda.sign_ballot(*rest[:8], rest[8] if len(rest) > 8 else plain)
        kernels.descend, kernels.disagreement = cuda.descend, cuda.disagreement
    p, random = torch.nn.Parameter(torch.ones(70)), torch.Generator().manual_seed(comm.rank)
    optimizer = Signum([p], zero="abstain", vote="server", cuda_aware=aware, comm=comm)
    ways.append(type(optimizer._cast_buckets.all[0].there).__name__)
    before = comm.traffic.sent, comm.traffic.messages
    for _ in range(2):
        p.grad = torch.randn(70, generator=random).round()
        optimizer.step()
    sums.append((checksum([p]), optimizer.report.voters, optimizer.report.agreement))
    sent.append((comm.traffic.sent - before[0], comm.traffic.messages - before[1]))
assert ways == ["NoneType", "AwareVote"], ways
print("equal" if sums[0] == sums[1] and sent[0][0] == sent[1][0] else (sums, sent), flush=True)
"""


def test_the_server_votes_on_memory_whose_address_mpi_is_given(
    mpirun: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    (tmp_path / "aware.py").write_text(AWARE.format(tests=str(HERE)))
    done = mpirun(3, tmp_path / "aware.py", NUMBA_ENABLE_CUDASIM="1", PYTHONPATH=str(HERE.parent))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("equal") == 3, done.stdout + done.stderr[-3000:]


# ---- the probe

CHILDREN = {
    "passes": "leave('control'); leave('passed')",
    "crashes": "leave('control'); os.abort()",
    "hangs": "leave('control'); time.sleep(60)",
    "lies": "leave('control'); leave('wrong', 'bcast of 64 bytes'); sys.exit(1)",
    "no pair": "print('1 rank: nobody there', flush=True); sys.exit(1)",
}
CHILD = """
import os, sys, time
from pathlib import Path
def leave(mark, text=""):
    Path(sys.argv[3], f"{{mark}}.{{os.getpid()}}").write_text(text)
open({starts!r}, "a").write("x")
"""


@pytest.fixture
def probed(tmp_path: Path) -> Callable[..., Answer]:
    """Consult with a child in place of the real one; it notes each of its starts."""
    from launching import clean_environment

    environ = clean_environment() | {"XDG_CACHE_HOME": str(tmp_path / "cache")}

    def consult(child: str, seconds: float = 30, **variables: str) -> Answer:
        file = tmp_path / "child.py"
        file.write_text(CHILD.format(starts=str(tmp_path / "starts")) + CHILDREN[child])
        return awareness.consult("cuda:0", [sys.executable, str(file)], seconds, environ | variables)

    return consult


needs_mpirun = pytest.mark.skipif(
    not Path(sys.executable).with_name("mpirun").exists(), reason="no mpirun beside this Python"
)


@needs_mpirun
@pytest.mark.parametrize(
    "child, aware, reason",
    [
        ("passes", True, "each operation brought the right bytes"),
        ("crashes", False, "the probe crashed, exit code"),
        ("lies", False, "other bytes came than were sent, by bcast of 64 bytes"),
        ("no pair", None, "no pair of ranks works here: exit code 1, its last line"),
    ],
)
def test_a_probe_survives_what_its_child_does(
    probed: Callable[..., Answer], child: str, aware: bool | None, reason: str
) -> None:
    answer = probed(child)
    assert answer.aware is aware
    assert reason in answer.reason


@needs_mpirun
def test_a_probe_that_hangs_is_ended_and_means_no(probed: Callable[..., Answer]) -> None:
    answer = probed("hangs", seconds=3)
    assert answer == Answer(False, "the probe hung, no end after 3 s")


@needs_mpirun
def test_what_was_found_is_remembered_by_switches_and_a_damaged_memory_is_forgotten(
    probed: Callable[..., Answer], tmp_path: Path
) -> None:
    starts, cache = tmp_path / "starts", tmp_path / "cache" / "mpisign" / "cuda-aware.json"
    assert probed("passes").aware
    assert probed("crashes").aware  # nobody asked it
    assert starts.read_text() == "xx"
    assert probed("lies", MPICH_GPU_SUPPORT_ENABLED="1").aware is False
    assert len(json.loads(cache.read_text())) == 2
    assert [file.name for file in cache.parent.iterdir()] == [cache.name]
    cache.write_text("{")
    assert probed("no pair").aware is None
    assert cache.read_text() == "{"  # what could not be tried is not remembered
    assert probed("crashes").aware is False


def test_where_there_is_no_mpirun_nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(awareness.shutil, "which", lambda *_, **__: None)
    assert awareness.probe("cuda:0", [], 1, {}) == Answer(None, "there is no mpirun to start a pair of ranks with")


@pytest.mark.slow
@needs_mpirun
def test_the_real_child_passes_between_ordinary_memory(tmp_path: Path) -> None:
    answer = awareness.consult("cpu", environ=os.environ | {"XDG_CACHE_HOME": str(tmp_path)})
    assert answer.aware, answer


class FakeMPI:
    """Two ranks in one: each receives what `forge` makes of what the other one would have sent."""

    def __init__(self, forge: Callable[[str, Any], Any]) -> None:
        self._forge, self._sent = forge, None

    def Get_rank(self) -> int:  # noqa: N802
        return 0

    def Send(self, block: Any, *_: int) -> None:  # noqa: N802
        pass

    def Recv(self, block: Any, *_: int) -> None:  # noqa: N802
        block[:] = self._forge("recv", np.arange(len(block)) * 0x9E3779B1 + 1)

    def Irecv(self, block: Any, *_: int) -> Any:  # noqa: N802
        block[:] = self._forge("irecv", np.arange(len(block)) * 0x9E3779B1 + 1)
        return SimpleNamespace(Wait=lambda: None)

    def Isend(self, block: Any, *_: int) -> Any:  # noqa: N802
        return SimpleNamespace(Wait=lambda: None)

    def Bcast(self, block: Any, root: int) -> None:  # noqa: N802
        block[:] = self._forge("bcast", block)


@pytest.mark.parametrize(
    "liar, said",
    [("", ""), ("recv", "send and recv of 64"), ("irecv", "isend and irecv of 64"), ("bcast", "bcast of 64")],
)
def test_each_operation_is_looked_at(liar: str, said: str) -> None:
    def forge(verb: str, block: Any) -> Any:
        return block * 0 if verb == liar else block

    wrong = probing.exercise(FakeMPI(forge), np.array, lambda block: block, lambda: None)
    assert wrong.startswith(said)
    assert bool(wrong) == bool(liar)


@pytest.mark.parametrize("wanted, aware, gives", [("yes", None, True), ("yes", True, True), ("probe", True, True)])
def test_the_users_word_counts_where_nothing_is_known(wanted: str, aware: bool | None, gives: bool) -> None:
    assert awareness.decide(wanted, Answer(aware, "")) is gives


@pytest.mark.parametrize("wanted, aware", [("yes", False), ("probe", False), ("probe", None)])
def test_no_word_counts_against_a_probe(wanted: str, aware: bool | None) -> None:
    with pytest.raises(EnvironmentProblem, match=f"--cuda-aware {wanted}: .*because.*copied through pinned memory"):
        awareness.decide(wanted, Answer(aware, "because"))


def test_what_one_rank_finds_holds_for_all(capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(configured(None), run=RunConfig(device="cuda", cuda_aware="probe"))
    choice = devices.Choice("cuda:0")

    def decided(comm: Any, answers: list[Answer | None], config: Any = config) -> str:
        return str(_on_devices(comm, config, choice, answers[comm.rank]).run.cuda_aware)

    yes, no = Answer(True, ""), Answer(False, "the probe crashed")
    assert simulate(3, decided, [yes, None, yes]) == ["yes"] * 3
    assert capsys.readouterr().err == ""
    assert simulate(3, decided, [yes, None, no]) == ["no"] * 3
    assert capsys.readouterr().err.count("the probe crashed") == 1
    insisting = replace(config, run=RunConfig(device="cuda", cuda_aware="yes"))

    def refused(comm: Any) -> None:
        with pytest.raises(EnvironmentProblem, match=r"--cuda-aware yes: no: .*crashed"):
            decided(comm, [yes, None, no], insisting)

    simulate(3, refused)


# ---- mixed precision


def test_a_gradient_scaler_and_autocast_train_half_weights_on_the_cpu() -> None:
    """bfloat16 activations, and gradients of the parameters' own dtype; momentum and steps are float32."""
    for dtype in (torch.float32, torch.bfloat16):

        def train(comm: Any, dtype: torch.dtype = dtype) -> tuple[int, int]:
            torch.manual_seed(0)
            model = torch.nn.Linear(8, 4).to(dtype)
            optimizer = Signum(model.parameters(), lr=1e-2, comm=comm)
            scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
            x = torch.randn(16, 8, generator=torch.Generator().manual_seed(comm.rank))
            for step in range(4):
                optimizer.zero_grad()
                with torch.autocast("cpu", torch.bfloat16):
                    loss = model(x if dtype == torch.float32 else x.to(dtype)).square().mean()
                if step == 2 and comm.rank == 0:
                    loss = loss * float("inf")
                scaler.scale(loss).backward()
                assert next(model.parameters()).grad.dtype == dtype
                scaler.step(optimizer)
                scaler.update()
            assert optimizer.memory.dtype == torch.float32
            return checksum(model.parameters()), optimizer.steps_taken

        one, two = simulate(2, train)
        assert one == two
        assert one[1] == 3  # the step that overflowed on one rank changed nothing on either


# ---- on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [Signum, SignSGD, Lion])
@pytest.mark.parametrize("overlap", [False, True])
def test_steps_on_a_gpu_have_the_bits_of_the_cpu(kind: Any, overlap: bool) -> None:
    def train(comm: Any, device: str) -> list[Any]:
        model, found = odd_model(), []
        own = {name: torch.nn.Parameter(p.detach().to(device), p.requires_grad) for name, p in model.items()}
        optimizer = kind(own.values(), overlap=overlap, bucket=64, comm=comm)
        for step in range(3):
            give_gradients(model, comm.rank, step, without=("word",) if comm.rank == step else ())
            for name, p in model.items():
                own[name].grad = None if p.grad is None else p.grad.to(device)
            optimizer.step()
            report = optimizer.report
            found.append((checksum(own.values()), report.voters, report.agreement, report.finite))
        return found

    assert repr(simulate(3, train, "cuda")) == repr(simulate(3, train, "cpu"))


@pytest.mark.gpu
@pytest.mark.parametrize("algorithm", ["signum", "lion", "sgd", "adam"])
def test_a_run_on_a_gpu_learns(algorithm: str, tmp_path: Path) -> None:
    flags = [
        "--device",
        "cuda",
        "--simulate",
        "3",
        "--epochs",
        "3",
        "--algorithm",
        algorithm,
        "--output",
        str(tmp_path),
    ]
    assert main(flags) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["test_accuracy"] > 0.5
