"""NVML's return codes, translated once."""

from coldaisle.domain.errors import (
    DeviceLost,
    DriverAbsent,
    DriverMismatch,
    NoData,
    NotSupported,
    PermissionDenied,
    ResetRequired,
    Transient,
    VendorError,
)

# Codes and their meaning: nvml.h, nvmlReturn_t. 2 (invalid argument) is what older drivers say to ids they don't know;
# 25 is a struct version they don't know.
_BY_CODE: dict[int, type[VendorError]] = {
    2: NotSupported,
    3: NotSupported,
    4: PermissionDenied,
    6: NoData,
    9: DriverAbsent,
    12: DriverAbsent,
    13: NotSupported,
    15: DeviceLost,
    16: ResetRequired,
    17: PermissionDenied,
    18: DriverMismatch,
    21: NoData,
    25: NotSupported,
}
_MEANING = {
    4: "permission denied",
    9: "the NVIDIA kernel module is not loaded",
    10: "timed out",
    12: "the NVIDIA driver library (libnvidia-ml.so.1) is not on this machine",
    15: "the GPU has fallen off the bus",
    16: "the GPU needs a reset",
    17: "the operating system hides the GPU from this process",
    18: "the NVIDIA library and the loaded kernel module are of different versions",
    999: "the driver reports an unknown error",
}
_REMEDY_17 = "the device cgroup hides this GPU: check DeviceAllow= or the container's device list"


def translate(code: int, what: str) -> VendorError:
    """Return the error for NVML return `code`; `what` names the call. Unknown codes are `Transient`."""
    meaning = _MEANING.get(code)
    message = f"{meaning} ({what}: NVML {code})" if meaning else f"{what} answered NVML error {code}"
    error = _BY_CODE.get(code, Transient)(message, code=code)
    if code == 17:
        error.remedy = _REMEDY_17
    return error


def slug_of(code: int) -> str:
    """Return the absence reason for NVML return `code` without making an exception."""
    return _BY_CODE.get(code, Transient).slug
