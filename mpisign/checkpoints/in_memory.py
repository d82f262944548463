"""A state as one block of bytes, to be sent: safetensors, as in a checkpoint's file, without checksums."""

import json

import torch
from torch import Tensor

from ..errors import CheckpointError
from .copying import State
from .packing import pack, unpack


def to_block(state: State) -> Tensor:
    """Return a state as uint8[n], which shares no memory with it; CheckpointError for what can't be packed, by its place."""
    from safetensors.torch import save

    tensors, text = pack(state)
    alone = {name: tensor.clone() for name, tensor in tensors.items()}  # the library refuses tensors that share memory
    return torch.frombuffer(bytearray(save(alone, {"state": text})), dtype=torch.uint8)


def from_block(block: Tensor) -> State:
    """Return the state that `to_block` was given, bit for bit; CheckpointError for bytes that are none of its."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    content = block.numpy().tobytes()
    try:
        length = int.from_bytes(content[:8], "little")
        text = json.loads(content[8 : 8 + length])["__metadata__"]["state"]
        tensors = load(content)
    except (SafetensorError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise CheckpointError(f"a state that came in a message can't be read ({error})") from error
    return unpack(tensors, text)
