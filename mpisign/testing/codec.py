"""The contract of a codec."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ..codecs import Codec, ErrorFeedback
from .checks import require


def check_codec(make: Callable[[int], Codec]) -> None:
    """Check a codec, `make(numel)`: messages of fixed length, and the same bits whenever the same is encoded.

    Encoding and decoding change neither their input nor one another; zeros come back as zeros; what is not finite is not
    accepted. What it says of itself holds: `unbiased`, `repeats`, and with `feedback` that nothing is lost for good.
    """
    for numel in (0, 1, 63, 64, 65, 1001):
        random = np.random.default_rng(numel)
        vector = torch.from_numpy((random.standard_normal(numel) * (random.random(numel) < 0.8)).astype(np.float32))
        codec = make(numel)
        _check_messages(codec, vector, f"{numel} coordinates")
        zeros = codec.decode(codec.encode(torch.zeros(numel), 3))
        require(not zeros.any(), f"{numel} coordinates: zeros come back as something else")
        for bad in (float("nan"), float("inf")) if numel else ():
            spoilt = vector.clone()
            spoilt[-1] = bad
            require(not codec.accepts(spoilt), f"{numel} coordinates: it accepts a vector with {bad}")
        if codec.feedback:
            _check_feedback(make(numel), random)
    if codec.unbiased:
        _check_unbiased(make(65))


def _check_messages(codec: Codec, vector: Tensor, where: str) -> None:
    before = vector.clone()
    require(codec.accepts(vector), f"{where}: it does not accept a vector of small numbers")
    message = codec.encode(vector, 3)
    require(torch.equal(vector, before), f"{where}: encode changed its input")
    fits = message.dtype == torch.uint64 and message.shape == (codec.words,) and codec.nbytes == message.nbytes
    require(fits, f"{where}: wanted a message uint64[{codec.words}], got {message.dtype}{list(message.shape)}")
    sent = message.clone()
    back = codec.decode(message)
    require(torch.equal(message, sent), f"{where}: decode changed its input")
    fits = back.dtype == torch.float32 and back.shape == vector.shape and bool(back.isfinite().all())
    require(fits, f"{where}: wanted finite float32[{len(vector)}] back, got {back.dtype}{list(back.shape)}")
    kept = back.numpy().tobytes()
    back.zero_()
    require(codec.decode(message).numpy().tobytes() == kept, f"{where}: what was decoded is no memory of its own")
    require(torch.equal(codec.encode(vector, 3), sent), f"{where}: encode, decode, encode gives other bits")
    if codec.repeats:
        again = codec.encode(codec.decode(message), 4)
        require(torch.equal(again, sent), f"{where}: what has come back is encoded to other bits")


def _check_feedback(codec: Codec, random: np.random.Generator) -> None:
    """What came out and what is owed is what went in; of whole numbers, so that only what a codec makes of them is rounded."""
    wrapped, given, taken = ErrorFeedback(codec), torch.zeros(codec.numel), torch.zeros(codec.numel)
    for key in range(30):
        vector = torch.from_numpy(random.integers(-100, 101, codec.numel).astype(np.float32))
        given += vector
        taken += wrapped.decode(wrapped.encode(vector, key))
        lost = (taken + wrapped.residual - given).abs()
        # sums stay below 4096, whose float32 neighbours are 2^-12 apart: two roundings of half of it a message
        require(bool((lost <= (key + 1) * 2.0**-12).all()), f"{codec.numel} coordinates: something is lost for good")


def _check_unbiased(codec: Codec) -> None:
    draws, random = 10_000, np.random.default_rng(0)
    vector = torch.from_numpy(random.standard_normal(codec.numel).astype(np.float32))
    back = torch.stack([codec.decode(codec.encode(vector, 1000 * key)) for key in range(draws)]).double()
    apart = back.mean(0) - vector
    # five standard errors, by the noisiest coordinate: a quiet one may show a rare value too seldom to tell its own; and
    # 2^-22 of the norm, for the rounding of a norm and of a probability
    rounding = 2.0**-22 * float(vector.norm())
    most = 5 * float(back.std(0).max()) / draws**0.5 + rounding
    require(bool((apart.abs() <= most).all()), f"it is biased: off by {float(apart.abs().max()):.2g}, above {most:.2g}")
    # all coordinates together: a little too small everywhere would pass the other test
    inwards = float((apart * vector.sign()).sum())
    most = 5 * float(back.var(0).sum()) ** 0.5 / draws**0.5 + codec.numel * rounding
    require(abs(inwards) <= most, f"it is biased: magnitudes are off by {inwards:.2g} in all, above {most:.2g}")
