"""The emulated AWS account: `Emulator` starts it and ends it."""

from operations.emulator.launcher import Emulator, EmulatorError

__all__ = ["Emulator", "EmulatorError"]
