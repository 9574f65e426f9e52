"""What kernel messages are sorted into: one list for the reader that sorts and the collector that counts."""

KINDS = (
    "xid",
    "sxid",
    "gpu_lost",
    "gpu_init_failed",
    "api_mismatch",
    "oom_kill",
    "filesystem_read_only",
    "filesystem_error",
    "io_error",
    "nouveau",
)
"""Every kind that `classify` gives; the label `kind` of `dgx_kernel_messages_total`."""
