"""GPM samples and events of the simulated NVML."""
# ruff: noqa: N802  pynvml's names

import ctypes
import math
from typing import Any

import pynvml

from coldaisle.simulation.control import Client, ControlError
from coldaisle.simulation.machine import GPU
from coldaisle.simulation.nvml_session import Session

MIB = 1048576.0
XID_EVENT = 0x8
"""nvmlEventTypeXidCriticalError."""
_COUNTERS = 17
_SAMPLE = ctypes.c_double * (_COUNTERS + 3)
_UPTIME, _GPU, _SPOILED, _FIRST = 0, 1, 2, 3
_BYTES = {20: 13, 21: 14, 60: 15, 61: 16}
"""GPM metric to its counter: PCIe sent and received, NVLink received and sent."""
_OTHERS = 200
"""Metric ids below are known and answer 0 on an idle unit; from here on the driver does not know them."""


class EventSet:
    """An event set: a connection that the machine's process writes Xids to."""

    def __init__(self, directory: str) -> None:
        self.client = Client(directory)


class Activity(Session):
    """GPM and events over the machine's memory and control socket."""

    def nvmlGpmQueryDeviceSupport(self, handle: Any) -> Any:
        """Say whether the product has GPM."""
        self._gpu(handle)
        support = pynvml.c_nvmlGpmSupport_t()
        support.version = pynvml.NVML_GPM_SUPPORT_VERSION
        support.isSupportedDevice = int(self._profile.gpm)
        return support

    def nvmlGpmSampleAlloc(self) -> Any:
        """Return a sample: as in the library, a pointer to memory that `nvmlGpmSampleFree` gives back."""
        self._library()
        memory = _SAMPLE()
        self._samples[ctypes.addressof(memory)] = memory
        return ctypes.cast(memory, pynvml.c_nvmlGpmSample_t)

    def nvmlGpmSampleFree(self, sample: Any) -> None:
        """Free a sample."""
        if self._samples.pop(_address(sample), None) is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)

    def nvmlGpmSampleGet(self, handle: Any, sample: Any) -> Any:
        """Copy the GPU's accumulators into a sample."""
        base = self._gpu(handle)
        if not self._profile.gpm:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if code := int(self._values[base + GPU["gpm_error"]]):
            raise pynvml.NVMLError(code)
        index = self._index(base)
        assert self._reader is not None
        taken = self._reader.snapshot(index)
        memory = self._sample(sample)
        memory[_UPTIME], memory[_GPU] = taken.uptime, index
        memory[_SPOILED] = self._glitch(base + GPU["glitch_gpm"])
        memory[_FIRST:] = taken.counters
        return sample

    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        """Fill in the metrics between the request's two samples; each has its own return code."""
        self._library()
        old, new = self._sample(request.sample1), self._sample(request.sample2)
        if old[_GPU] != new[_GPU]:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        seconds = new[_UPTIME] - old[_UPTIME]
        for place in range(request.numMetrics):
            metric = request.metrics[place]
            metric.nvmlReturn, metric.value = self._metric(metric.metricId, old, new, seconds)
        return request

    def _metric(self, number: int, old: Any, new: Any, seconds: float) -> tuple[int, float]:
        if seconds <= 0:
            return pynvml.NVML_ERROR_NO_DATA, 0.0
        if new[_SPOILED]:
            return 0, math.nan
        if 1 <= number <= 13:
            place = _FIRST + number - 1
            return 0, min(100.0, (new[place] - old[place]) / seconds)
        counter, share = _BYTES.get(number), 1
        links = self._profile.nvlinks
        if 62 <= number < 62 + 2 * links:
            counter, share = _BYTES[60 + number % 2], links
        if counter is None:
            return (0, 0.0) if 0 < number < _OTHERS else (pynvml.NVML_ERROR_INVALID_ARGUMENT, 0.0)
        place = _FIRST + counter
        return 0, (new[place] - old[place]) / seconds / MIB / share

    def _sample(self, sample: Any) -> Any:
        memory = self._samples.get(_address(sample))
        if memory is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return memory

    @property
    def _samples(self) -> dict[int, Any]:
        found: dict[int, Any] = self.__dict__.setdefault("_sample_memory", {})
        return found

    def nvmlEventSetCreate(self) -> EventSet:
        """Return an empty event set."""
        self._library()
        return EventSet(self._directory)

    def nvmlEventSetFree(self, event_set: EventSet) -> None:
        """Free an event set."""
        event_set.client.close()

    def nvmlDeviceGetSupportedEventTypes(self, handle: Any) -> int:
        """Only Xids are simulated."""
        self._gpu(handle)
        return XID_EVENT

    def nvmlDeviceRegisterEvents(self, handle: Any, event_types: int, event_set: EventSet) -> None:
        """Have a GPU's Xids reported to a set."""
        index = self._index(self._gpu(handle))
        if not event_types or event_types & ~XID_EVENT:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        try:
            event_set.client.subscribe(index)
        except ControlError:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from None

    def nvmlEventSetWait_v2(self, event_set: EventSet, timeoutms: int) -> Any:  # noqa: D102  as pynvml has it
        self._library()
        try:
            event = event_set.client.event(timeoutms / 1000)
        except ControlError:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_UNKNOWN) from None
        if event is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        data = pynvml.c_nvmlEventData_t()
        data.device = self._handles[event["gpu"]]
        data.eventType = XID_EVENT
        data.eventData = event["xid"]
        data.gpuInstanceId = data.computeInstanceId = 0xFFFFFFFF
        return data


def _address(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0
