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
_REMEDY_17 = "the device cgroup hides this GPU: check DeviceAllow= or the container's device list"


def translate(code: int, what: str) -> VendorError:
    """Return the error for NVML return `code`; `what` names the call. Unknown codes are `Transient`."""
    error = _BY_CODE.get(code, Transient)(f"{what} answered NVML error {code}", code=code)
    if code == 17:
        error.remedy = _REMEDY_17
    return error


def slug_of(code: int) -> str:
    """Return the absence reason for NVML return `code` without making an exception."""
    return _BY_CODE.get(code, Transient).slug
