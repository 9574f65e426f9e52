"""How tests ask a vendor."""

import pynvml
import pytest

GPM_IDS = [*range(1, 14), 20, 21, 60, 61, 62, 63]


def code_of(function, *args):
    with pytest.raises(pynvml.NVMLError) as caught:
        function(*args)
    return caught.value.value


def gpm(vendor, handle, machine, seconds=5):
    """GPM metrics over so much simulated time, as the driver takes them."""
    samples = [vendor.nvmlGpmSampleAlloc(), vendor.nvmlGpmSampleAlloc()]
    vendor.nvmlGpmSampleGet(handle, samples[0])
    if seconds:
        machine.client.advance(seconds)
    vendor.nvmlGpmSampleGet(handle, samples[1])
    request = vendor.c_nvmlGpmMetricsGet_t()
    request.version = vendor.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(GPM_IDS)
    request.sample1, request.sample2 = samples
    for place, number in enumerate(GPM_IDS):
        request.metrics[place].metricId = number
    vendor.nvmlGpmMetricsGet(request)
    for sample in samples:
        vendor.nvmlGpmSampleFree(sample)
    return {
        number: (request.metrics[place].nvmlReturn, request.metrics[place].value)
        for place, number in enumerate(GPM_IDS)
    }


def field(vendor, handle, number, scope=0):
    (answer,) = vendor.nvmlDeviceGetFieldValues(handle, [(number, scope)])
    names = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
    return answer.nvmlReturn, answer.valueType, getattr(answer.value, names[answer.valueType])
