"""What touches the outside: vendor libraries, /proc, /sys, processes. Errors are translated here, once."""
