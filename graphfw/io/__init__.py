"""Files: checkpoints in the safetensors format."""

from graphfw.io.checkpoint import Mismatch, check_entries, read_checkpoint, write_checkpoint

__all__ = ["Mismatch", "check_entries", "read_checkpoint", "write_checkpoint"]
