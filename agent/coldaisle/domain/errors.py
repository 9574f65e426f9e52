"""Errors that cross layers. Drivers translate vendor codes into these once; nothing above sees a vendor code."""


class ColdaisleError(Exception):
    """Base of every error whose message is fit for an operator: what is wrong, where, and what to do."""

    remedy: str = ""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        if remedy:
            self.remedy = remedy


class ConfigError(ColdaisleError):
    """A configuration file that cannot be honoured.

    `problems` holds one `path:line: what, remedy` string each; all problems of a file are reported together.
    """

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class VendorError(ColdaisleError):
    """A vendor library refused or failed. `slug` is what metrics and health call the cause."""

    slug = "vendor_error"

    def __init__(self, message: str = "", *, code: int | None = None) -> None:
        super().__init__(message or self.slug)
        self.code = code


class DeviceLost(VendorError):
    """The GPU has fallen off the bus (NVML 15)."""

    slug = "lost"
    remedy = "drain the node; check `dmesg` for Xid 79; power-cycle the machine, then run `dcgmi diag -r 3`"


class ResetRequired(VendorError):
    """The GPU needs a reset before it works again (NVML 16)."""

    slug = "reset_required"
    remedy = "drain the node, `coldaisle release`, `nvidia-smi --gpu-reset -i GPU`, `coldaisle resume`"


class NotSupported(VendorError):
    """This GPU, driver or mode does not have the quantity (NVML 3, 13, 25)."""

    slug = "not_supported"


class PermissionDenied(VendorError):
    """The caller may not ask (NVML 4), or a device cgroup hides the GPU (NVML 17)."""

    slug = "permission_denied"
    remedy = "give the service the NVIDIA device nodes (DeviceAllow=) and see docs/configuration.md, privileges"


class DriverMismatch(VendorError):
    """User-space library and loaded kernel module differ (NVML 18): upgraded without a reload."""

    slug = "driver_mismatch"
    remedy = "reload the NVIDIA kernel modules or reboot the node; the agent picks the new driver up by itself"


class DriverAbsent(VendorError):
    """No usable driver: library not found (NVML 12) or kernel module not loaded (NVML 9)."""

    slug = "driver_absent"
    remedy = "install or load the NVIDIA driver (`modprobe nvidia`, `nvidia-smi`); the agent keeps trying"


class Transient(VendorError):
    """Failed now, may work at the next try (NVML 10, 19, 20, 23, 27, 29, 999)."""

    slug = "transient"


class NoData(VendorError):
    """The call worked and there is nothing to read yet (NVML 6, 21)."""

    slug = "no_data"
