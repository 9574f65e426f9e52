"""GPM: the profiling metrics that NVML offers on Hopper and later, with no DCGM at all."""

import math
from collections.abc import Callable
from typing import Any

MIN_INTERVAL = 0.1
"""Seconds between two samples below which GPM's rates are noise (NVML documentation, GPM)."""


class Gpm:
    """Two samples in turns; each call gives the metrics over the time since the one before.

    `absent` says why this GPU has no GPM (`not_supported`, `permission_denied`), empty if it has. The sample buffers
    are allocated once and never freed in between.
    """

    def __init__(self, vendor: Any, handle: Any, guard: Callable[..., Any], clock: Callable[[], float]) -> None:
        self._vendor = vendor
        self._handle = handle
        self._guard = guard
        self._clock = clock
        self._samples: list[Any] = []
        self._taken_at: float | None = None
        self._request: Any = None
        self._requested: list[int] = []
        self.absent = self._probe()

    def _probe(self) -> str:
        query = getattr(self._vendor, "nvmlGpmQueryDeviceSupport", None)
        if query is None:
            return "not_supported"
        try:
            answer = self._guard("nvmlGpmQueryDeviceSupport", query, self._handle)
        except self._vendor.NVMLError as error:
            return "permission_denied" if getattr(error, "value", 3) in (4, 17) else "not_supported"
        return "" if getattr(answer, "isSupportedDevice", 0) else "not_supported"

    def sample(self, metrics: list[int]) -> dict[int, tuple[int, float]]:
        """Take a sample; return metric id -> (NVML return code, value since the previous sample).

        Empty at the first call and after a failed one: a rate needs two samples.
        """
        if not self._samples:
            alloc = self._vendor.nvmlGpmSampleAlloc
            self._samples = [self._guard("nvmlGpmSampleAlloc", alloc), self._guard("nvmlGpmSampleAlloc", alloc)]
        now = self._clock()
        if self._taken_at is not None and now - self._taken_at < MIN_INTERVAL:
            return {}
        old, new = self._samples
        try:
            self._guard("nvmlGpmSampleGet", self._vendor.nvmlGpmSampleGet, self._handle, new)
        except self._vendor.NVMLError as error:
            self._taken_at = None
            return self._failed(metrics, error)
        first = self._taken_at is None
        self._taken_at = now
        self._samples = [new, old]
        if first:
            return {}
        request = self._prepare(metrics)
        request.sample1, request.sample2 = old, new
        try:
            self._guard("nvmlGpmMetricsGet", self._vendor.nvmlGpmMetricsGet, request)
        except self._vendor.NVMLError as error:
            return self._failed(metrics, error)
        return {
            metric: (request.metrics[place].nvmlReturn, request.metrics[place].value)
            for place, metric in enumerate(metrics)
        }

    def _failed(self, metrics: list[int], error: Exception) -> dict[int, tuple[int, float]]:
        code = getattr(error, "value", 999)
        if code in (3, 4, 13):
            self.absent = "permission_denied" if code == 4 else "not_supported"
        return dict.fromkeys(metrics, (code, math.nan))

    def _prepare(self, metrics: list[int]) -> Any:
        if self._request is None or self._requested != metrics:
            request = self._vendor.c_nvmlGpmMetricsGet_t()
            request.version = self._vendor.NVML_GPM_METRICS_GET_VERSION
            request.numMetrics = len(metrics)
            for place, metric in enumerate(metrics):
                request.metrics[place].metricId = metric
            self._request, self._requested = request, list(metrics)
        return self._request

    def close(self) -> None:
        """Free both samples; errors do not matter any more."""
        for sample in self._samples:
            try:
                self._vendor.nvmlGpmSampleFree(sample)
            except self._vendor.NVMLError:
                break
        self._samples = []
