import math

import pytest
import torch

from mpisign import seeding
from mpisign.errors import ConfigError
from mpisign.tasks.models import lenet, mlp, small_cnn, vgg11


def numel(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    "build, shape, count",
    [
        (mlp, (1, 28, 28), 79_510),
        (mlp, (1, 8, 8), 7_510),
        (small_cnn, (1, 28, 28), 5_338),
        (lenet, (1, 28, 28), 61_706),
        (lenet, (3, 32, 32), 62_006),
        (vgg11, (3, 32, 32), 9_750_922),
    ],
)
def test_a_model_has_the_parameters_of_its_paper(build, shape, count):
    assert numel(build(shape, 10)) == count


@pytest.mark.parametrize(
    "build, shape",
    [
        (mlp, (1, 8, 8)),
        (mlp, (5,)),
        (small_cnn, (1, 5, 5)),
        (small_cnn, (3, 10, 13)),
        (lenet, (1, 12, 12)),
        (lenet, (1, 28, 28)),
        (lenet, (3, 31, 32)),
        (lenet, (3, 33, 64)),
        (vgg11, (1, 32, 32)),
        (vgg11, (3, 40, 70)),
    ],
)
def test_a_model_answers_with_one_number_a_class_and_every_parameter_gets_a_gradient(build, shape):
    model = build(shape, 7).eval()
    answer = model(torch.rand(2, *shape))
    assert answer.shape == (2, 7)
    answer.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    "build, shape, words",
    [
        (lenet, (1, 8, 8), "lenet: inputs are 1x8x8, .* at least 12x12"),
        (lenet, (1, 28, 11), "at least 12x12"),
        (small_cnn, (1, 4, 28), "small_cnn: inputs are 1x4x28, .* at least 5x5"),
        (lenet, (784,), "inputs are 784, wanted channels x height x width"),
        (vgg11, (1, 28, 28), "vgg11: inputs are 1x28x28, .* at least 32x32"),
    ],
)
def test_images_too_small_for_a_model_are_refused_with_the_least_size(build, shape, words):
    with pytest.raises(ConfigError, match=words):
        build(shape, 10)


@pytest.mark.parametrize("build", [mlp, lenet])
def test_the_seed_round_the_call_decides_the_weights(build):
    def weights(seed):
        with seeding.torch_seeded(seed, seeding.SHARED, "weights"):
            return torch.nn.utils.parameters_to_vector(build((1, 28, 28), 10).parameters())

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_convolutions_of_vgg11_start_with_the_deviation_of_the_paper_and_no_bias():
    with seeding.torch_seeded(0, seeding.SHARED, "weights"):
        model = vgg11((3, 32, 32), 10)
    for layer in [layer for layer in model if isinstance(layer, torch.nn.Conv2d)]:
        expected = math.sqrt(2 / (9 * layer.out_channels))
        error = 5 / math.sqrt(2 * layer.weight.numel())  # five deviations of an estimated deviation
        assert layer.weight.std().item() == pytest.approx(expected, rel=error)
        assert not layer.bias.any()


def test_vgg11_drops_half_twice_while_it_trains():
    model = vgg11((3, 32, 32), 10)
    assert [layer.p for layer in model if isinstance(layer, torch.nn.Dropout)] == [0.5, 0.5]
