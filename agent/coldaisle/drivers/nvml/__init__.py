"""NVML and GPM, read inside the vendor child. Nothing here is imported by the main process."""
