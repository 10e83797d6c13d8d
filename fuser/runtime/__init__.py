"""Devices, NVRTC, compiled kernels, variants, raw kernels, argument packing. Knows nothing of host programs or scheduling."""
