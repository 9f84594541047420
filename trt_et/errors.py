"""The exceptions that trt-et raises, in one tree.

::

    TrtEtError
    ├── BlobError                 an engine blob cannot be read or written
    │   └── DeviceIdError         its device_id is missing or unreadable
    ├── BuilderError              an engine could not be built
    │   ├── BuilderUnavailable    the builder's packages or hardware are missing
    │   ├── BuildCancelled        a build was cancelled
    │   ├── ConversionError       a call cannot be converted; names it
    │   └── PartitionError        one partition failed; names it and its operators
    │       └── BuildCrashed      its build ended the process that it ran in
    ├── BackendConflictError      another ``TensorRTBackend`` class is registered
    ├── OptionError               an option's value is wrong (also a ``ValueError``)
    │   └── UnknownOption         there is no such option (also a ``TypeError``)
    ├── PluginError               the native runtime plugin cannot be loaded or used
    ├── RunError                  a program could not be loaded or run
    └── UnsupportedModelError     trt_et.llm cannot export this model

Every message contains the failure, its object, the expected and the actual value, and a remedy.
"""

from __future__ import annotations

__all__ = [
    "BackendConflictError",
    "BlobError",
    "BuildCancelled",
    "BuildCrashed",
    "BuilderError",
    "BuilderUnavailable",
    "ConversionError",
    "DeviceIdError",
    "OptionError",
    "PartitionError",
    "PluginError",
    "RunError",
    "TrtEtError",
    "UnknownOption",
    "UnsupportedModelError",
]


class TrtEtError(Exception):
    """Base class of every exception that trt-et raises on purpose."""


class BlobError(TrtEtError):
    """An engine blob is malformed, truncated, corrupt or of an unknown kind."""


class DeviceIdError(BlobError):
    """A readable blob has no valid ``device_id``."""


class BuilderError(TrtEtError):
    """An engine could not be built."""


class BuilderUnavailable(BuilderError):
    """A builder cannot run here: a package or a GPU is missing."""


class BuildCancelled(BuilderError):
    """A build was cancelled."""


class ConversionError(BuilderError):
    """A call cannot be converted into TensorRT's layers.

    Attributes:
        node: The call's name in the graph that was converted; None if no call could be named.
        reason: Why, without the name.
    """

    def __init__(self, reason: str, node: str | None = None) -> None:
        super().__init__(f"node {node}: {reason}" if node else reason)
        self.node = node
        self.reason = reason


class PartitionError(BuilderError):
    """Building one partition failed; the message names the partition and its operators."""


class BuildCrashed(PartitionError):
    """The build of one partition ended its process: SIGSEGV, abort, out of memory."""


class BackendConflictError(TrtEtError):
    """Another ``BackendDetails`` subclass is named ``TensorRTBackend`` in this process."""


class OptionError(TrtEtError, ValueError):
    """An option has an unknown name, a wrong type or an impossible value."""


class UnknownOption(OptionError, TypeError):
    """There is no option of this name."""


class PluginError(TrtEtError):
    """The native runtime plugin is missing, cannot be loaded, or is not usable."""


class RunError(TrtEtError):
    """A program could not be loaded or run; the message contains the backend's message."""


class UnsupportedModelError(TrtEtError):
    """A language model cannot be exported by ``trt_et.llm``; the message has the reason."""
