"""pynvml's functions over a simulated machine's memory: what the real driver is given instead of the library.

Constants, structs and exception classes are pynvml's own, through `__getattr__`; its library is never called. A read
costs microseconds: an index into mapped memory. Only setters and event waits talk to the machine's process.
"""
# ruff: noqa: N802, D102  pynvml's names, and its documentation holds

import time
from types import FunctionType
from typing import Any, NoReturn

import pynvml

from coldaisle.simulation import profiles
from coldaisle.simulation.machine import GPU
from coldaisle.simulation.nvml_activity import Activity
from coldaisle.simulation.nvml_fields import ENERGY_IDS, POWER_IDS, UNION

_SENTINEL_CELSIUS = 255
_FIRST_PID = 4_300_000
"""Above any pid that Linux gives out (pid_max is at most 4194304), so that no real process is ever blamed."""
_BANKS = 3072  # [measured on an H200] banks of the row remapper


class SimulatedNvml(Activity):
    """Stands for the `pynvml` module.

    Args:
        machine_dir: the directory of a running simulator.
    """

    def __getattr__(self, name: str) -> Any:
        value = getattr(pynvml, name)
        if not (isinstance(value, FunctionType) and name.startswith("nvml")):
            return value

        def unsupported(*_: Any, **__: Any) -> NoReturn:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

        return unsupported

    def _number(self, handle: Any, slot: str, factor: float = 1.0) -> int:
        base = self._gpu(handle)
        return int(self._values[base + GPU[slot]] * factor)

    # The library and its GPUs

    def nvmlSystemGetDriverVersion(self) -> str:
        self._library()
        return profiles.DRIVER_VERSION

    def nvmlSystemGetNVMLVersion(self) -> str:
        self._library()
        return profiles.NVML_VERSION

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:
        self._library()
        return profiles.CUDA_VERSION

    nvmlSystemGetCudaDriverVersion = nvmlSystemGetCudaDriverVersion_v2  # noqa: N815  pynvml's name

    def nvmlDeviceGetCount(self) -> int:
        self._library()
        return len(self._visible())

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        self._library()
        visible = self._visible()
        if not 0 <= index < len(visible):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        handle = self._handles[visible[index]]
        self._gpu(handle)
        return handle

    def nvmlDeviceGetHandleByUUID(self, uuid: str | bytes) -> Any:
        self._library()
        wanted = uuid.decode() if isinstance(uuid, bytes) else uuid
        for index in self._visible():
            if profiles.uuid(self._profile, index) == wanted:
                handle = self._handles[index]
                self._gpu(handle)
                return handle
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)

    # Identity

    def nvmlDeviceGetIndex(self, handle: Any) -> int:
        return self._visible().index(self._index(self._gpu(handle)))

    def nvmlDeviceGetMinorNumber(self, handle: Any) -> int:
        return self._index(self._gpu(handle))

    def nvmlDeviceGetUUID(self, handle: Any) -> str:
        return profiles.uuid(self._profile, self._index(self._gpu(handle)))

    def nvmlDeviceGetName(self, handle: Any) -> str:
        self._gpu(handle)
        return self._profile.gpu_name

    def nvmlDeviceGetSerial(self, handle: Any) -> str:
        return profiles.serial(self._index(self._gpu(handle)))

    def nvmlDeviceGetVbiosVersion(self, handle: Any) -> str:
        self._gpu(handle)
        return self._profile.vbios

    def nvmlDeviceGetBoardPartNumber(self, handle: Any) -> str:
        self._gpu(handle)
        return self._profile.part_number

    def nvmlDeviceGetArchitecture(self, handle: Any) -> int:
        self._gpu(handle)
        return self._profile.architecture

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any) -> tuple[int, int]:
        self._gpu(handle)
        return self._profile.compute

    def nvmlDeviceGetPciInfo(self, handle: Any) -> Any:
        index = self._index(self._gpu(handle))
        info = pynvml.nvmlPciInfo_t()
        address = profiles.bus_id(index)
        info.busId, info.busIdLegacy = address.encode(), address[4:].encode()
        info.domain, info.bus, info.device = 0, profiles.pci_bus(index), 0
        info.pciDeviceId = self._profile.pci_device
        return info

    nvmlDeviceGetPciInfo_v3 = nvmlDeviceGetPciInfo  # noqa: N815  pynvml's name

    # Activity and memory

    def nvmlDeviceGetUtilizationRates(self, handle: Any) -> Any:
        base = self._gpu(handle)
        rates = pynvml.c_nvmlUtilization_t()
        rates.gpu = round(self._values[base + GPU["utilization"]])
        rates.memory = round(self._values[base + GPU["copy_utilization"]])
        return rates

    def nvmlDeviceGetEncoderUtilization(self, handle: Any) -> list[int]:
        self._gpu(handle)
        return [0, 167_000]

    nvmlDeviceGetDecoderUtilization = nvmlDeviceGetEncoderUtilization  # noqa: N815  pynvml's name

    def nvmlDeviceGetMemoryInfo(self, handle: Any, version: int | None = None) -> Any:
        used = self._number(handle, "memory_used")
        memory = pynvml.c_nvmlMemory_v2_t() if version else pynvml.c_nvmlMemory_t()
        reserved = self._profile.reserved_bytes
        memory.total = self._profile.memory_bytes
        memory.free = memory.total - reserved - used
        if version:
            memory.version, memory.reserved, memory.used = version, reserved, used
        else:
            memory.used = used + reserved
        return memory

    def nvmlDeviceGetComputeRunningProcesses(self, handle: Any) -> list[Any]:
        base = self._gpu(handle)
        if not self._values[base + GPU["processes"]]:
            return []
        process = pynvml.c_nvmlProcessInfo_v2_t()
        process.pid = _FIRST_PID + self._index(base)
        process.usedGpuMemory = int(self._values[base + GPU["memory_used"]])
        process.gpuInstanceId = process.computeInstanceId = 0xFFFFFFFF
        return [process]

    # Heat, power, clocks

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int) -> int:
        if sensor != pynvml.NVML_TEMPERATURE_GPU:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        base = self._gpu(handle)
        if self._glitch(base + GPU["glitch_temperature"]):
            return _SENTINEL_CELSIUS
        return int(self._values[base + GPU["core"]])

    def nvmlDeviceGetMarginTemperature(self, handle: Any) -> int:
        core = self._number(handle, "core")
        if not self._profile.margin:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return self._profile.gpu_max - core

    def nvmlDeviceGetTemperatureThreshold(self, handle: Any, kind: int) -> int:
        self._gpu(handle)
        profile = self._profile
        thresholds = (profile.shutdown, profile.slowdown, profile.memory_max, profile.gpu_max)
        if not 0 <= kind < len(thresholds):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return thresholds[kind]

    def nvmlDeviceGetPowerUsage(self, handle: Any) -> int:
        # The one-second average from Hopper on, the present value on GA100 (NVML header).
        base = self._gpu(handle)
        if self._glitch(base + GPU["glitch_power"]):
            return 0
        slot = "power_average" if self._profile.power_average_field else "power"
        return int(self._values[base + GPU[slot]] * 1000)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        base = self._gpu(handle)
        return self._energy(base)

    def _energy(self, base: int) -> int:
        energy = int(self._values[base + GPU["energy"]])
        return energy // 2 if self._glitch(base + GPU["glitch_energy"]) else energy

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any) -> int:
        return self._number(handle, "enforced", 1000)

    def nvmlDeviceGetPowerManagementLimit(self, handle: Any) -> int:
        return self._number(handle, "requested", 1000)

    def nvmlDeviceGetPowerManagementLimitConstraints(self, handle: Any) -> list[int]:
        self._gpu(handle)
        return [self._profile.power_min * 1000, self._profile.power_max * 1000]

    def nvmlDeviceGetPowerManagementDefaultLimit(self, handle: Any) -> int:
        self._gpu(handle)
        return self._profile.power_default * 1000

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: int) -> int:
        clock = self._number(handle, "clock")
        if kind == pynvml.NVML_CLOCK_MEM:
            return self._profile.memory_clock
        return clock if kind in (pynvml.NVML_CLOCK_GRAPHICS, pynvml.NVML_CLOCK_SM) else clock * 9 // 10

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: int) -> int:
        self._gpu(handle)
        return self._profile.memory_clock if kind == pynvml.NVML_CLOCK_MEM else self._profile.sm_max

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Any) -> int:
        return self._number(handle, "reasons")

    nvmlDeviceGetCurrentClocksThrottleReasons = nvmlDeviceGetCurrentClocksEventReasons  # noqa: N815  pynvml's name

    def nvmlDeviceGetPerformanceState(self, handle: Any) -> int:
        self._gpu(handle)
        return 0

    nvmlDeviceGetPowerState = nvmlDeviceGetPerformanceState  # noqa: N815  pynvml's name

    def nvmlDeviceGetViolationStatus(self, handle: Any, policy: int) -> Any:
        base = self._gpu(handle)
        status = pynvml.c_nvmlViolationTime_t()
        status.referenceTime = int(self._values[base + GPU["uptime"]] * 1e6)
        if policy == pynvml.NVML_PERF_POLICY_THERMAL:
            status.violationTime = int(self._fields[75].read(self._values, base, 0))
        return status

    # Modes, links, errors

    def nvmlDeviceGetPersistenceMode(self, handle: Any) -> int:
        self._gpu(handle)
        return 1

    def nvmlDeviceGetEccMode(self, handle: Any) -> list[int]:
        self._gpu(handle)
        return [1, 1]

    def nvmlDeviceGetMigMode(self, handle: Any) -> list[int]:
        self._gpu(handle)
        return [0, 0]

    def nvmlDeviceGetCurrPcieLinkGeneration(self, handle: Any) -> int:
        return self._number(handle, "pcie_generation")

    def nvmlDeviceGetCurrPcieLinkWidth(self, handle: Any) -> int:
        return self._number(handle, "pcie_width")

    def nvmlDeviceGetMaxPcieLinkGeneration(self, handle: Any) -> int:
        self._gpu(handle)
        return self._profile.pcie_generation

    def nvmlDeviceGetMaxPcieLinkWidth(self, handle: Any) -> int:
        self._gpu(handle)
        return 16

    def nvmlDeviceGetPcieReplayCounter(self, handle: Any) -> int:
        return self._number(handle, "pcie_replays")

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, error: int, counter: int) -> int:
        names = (("sbe_volatile", "sbe_aggregate"), ("dbe_volatile", "dbe_aggregate"))
        if error not in (0, 1) or counter not in (0, 1):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._number(handle, names[error][counter])

    def nvmlDeviceGetRemappedRows(self, handle: Any) -> tuple[int, ...]:
        base = self._gpu(handle)
        begin = base + GPU["remap_correctable"]
        return tuple(int(value) for value in self._values[begin : begin + 4])

    def nvmlDeviceGetRowRemapperHistogram(self, handle: Any) -> Any:
        correctable, uncorrectable, _, failure = self.nvmlDeviceGetRemappedRows(handle)
        histogram = pynvml.c_nvmlRowRemapperHistogramValues()
        histogram.none = failure
        histogram.high = min(_BANKS, correctable + uncorrectable)
        histogram.max = _BANKS - histogram.high - histogram.none
        return histogram

    def nvmlDeviceGetFieldValues(self, handle: Any, ids: Any) -> Any:
        base = self._gpu(handle)
        answers = (pynvml.c_nvmlFieldValue_t * len(ids))()
        now = int(time.time() * 1e6)
        for answer, wanted in zip(answers, ids, strict=True):
            number, scope = wanted if isinstance(wanted, tuple) else (wanted, 0)
            answer.fieldId, answer.scopeId, answer.timestamp = number, scope, now
            answer.nvmlReturn = self._answer(answer, base, number, scope)
        return answers

    def _answer(self, answer: Any, base: int, number: int, scope: int) -> int:
        field = self._fields.get(number)
        if field is None:
            known = 0 < number < pynvml.NVML_FI_MAX
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED if known else pynvml.NVML_ERROR_INVALID_ARGUMENT)
        try:
            value = field.read(self._values, base, scope)
        except LookupError:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        if number in POWER_IDS and self._glitch(base + GPU["glitch_power"]):
            value = 0
        elif number in ENERGY_IDS:
            value = self._energy(base)
        answer.valueType = field.kind
        setattr(answer.value, UNION[field.kind], value if field.kind == 0 else int(value))
        return 0

    # Setters: the only calls that go to the machine's process

    def nvmlDeviceSetPowerManagementLimit(self, handle: Any, milliwatts: int) -> None:
        self._control("set_power_limit", gpu=self._index(self._gpu(handle)), milliwatts=milliwatts)

    def nvmlDeviceSetGpuLockedClocks(self, handle: Any, low: int, high: int) -> None:
        self._control("lock_clocks", gpu=self._index(self._gpu(handle)), low=low, high=high)

    def nvmlDeviceResetGpuLockedClocks(self, handle: Any) -> None:
        self._control("lock_clocks", gpu=self._index(self._gpu(handle)), low=0, high=0)
