"""The agent's vocabulary: standard library only, imported by every process.

The vendor child and the reader import this package too, and every MiB there is paid per process:
`dataclasses` alone costs 2.5 MiB (it pulls in `inspect`), so value types here are `NamedTuple`s and
classes with `__slots__`.
"""
