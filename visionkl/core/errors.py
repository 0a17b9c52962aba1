"""Errors: one sentence each, saying what is wrong, where, what is accepted and what to do.

Every error raised on purpose derives from `VisionklError` and carries the exit code with which a command
ends:

==== ==========================================================
0    all went well
1    a failure of the program or of the machine
2    usage: a parameter or an option that is not accepted
3    bad data: a picture, annotation or model file that cannot be used
130  interrupted (the state was saved)
==== ==========================================================
"""


class VisionklError(Exception):
    """Base of all errors that visionkl raises on purpose."""

    exit_code = 1


class UsageError(VisionklError, ValueError):
    """A parameter or command-line option that is not accepted."""

    exit_code = 2


class DataError(VisionklError, ValueError):
    """A picture, an annotation or a data set that cannot be used."""

    exit_code = 3


class ModelFileError(DataError):
    """A file that is not a model, is damaged, or was written by a newer version."""


class DeviceError(VisionklError, RuntimeError):
    """A device was asked for that cannot compute here."""
