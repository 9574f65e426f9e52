"""A vendor of a few dozen lines: answers by table, fails on demand. For tests of what reads it."""

import pynvml


class FakeNvml:
    """pynvml's face over a dict `answers` {(function, args): value | exception | callable}."""

    def __init__(self, answers=None, fields=None, gpm=None):
        self.answers = dict(answers or {})
        self.fields = dict(fields or {})
        self.gpm = gpm
        self.calls = []

    def __getattr__(self, name):
        if name.startswith(("nvmlDevice", "nvmlSystem")):
            return lambda *args: self._answer(name, args)
        return getattr(pynvml, name)

    def _answer(self, name, args):
        self.calls.append(name)
        key = (name, args[1:]) if args else (name, ())
        answer = self.answers.get(key, self.answers.get(name, error(3)))
        if callable(answer):
            answer = answer()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def nvmlInit(self):
        self.calls.append("nvmlInit")

    def nvmlDeviceGetFieldValues(self, handle, ids):
        self.calls.append("nvmlDeviceGetFieldValues")
        if isinstance(self.fields, Exception):
            raise self.fields
        values = (pynvml.c_nvmlFieldValue_t * len(ids))()
        for slot, (number, scope) in zip(values, ids, strict=True):
            slot.fieldId, slot.scopeId = number, scope
            code, kind, value = self.fields.get(number, (3, 0, 0))
            slot.nvmlReturn, slot.valueType = code, kind
            setattr(slot.value, ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")[kind], value)
        return values

    def nvmlGpmQueryDeviceSupport(self, handle):
        answer = pynvml.c_nvmlGpmSupport_t()
        answer.isSupportedDevice = int(self.gpm is not None)
        return answer

    def nvmlGpmSampleAlloc(self):
        return pynvml.c_nvmlGpmSample_t()

    def nvmlGpmSampleFree(self, sample):
        return None

    def nvmlGpmSampleGet(self, handle, sample):
        if isinstance(self.gpm, Exception):
            raise self.gpm

    def nvmlGpmMetricsGet(self, request):
        for place in range(request.numMetrics):
            metric = request.metrics[place]
            metric.nvmlReturn, metric.value = self.gpm.get(metric.metricId, (0, 50.0))
        return request


def error(code):
    return pynvml.NVMLError(code)
