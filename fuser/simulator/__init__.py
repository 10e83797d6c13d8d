"""A NumPy SIMT machine: runs expanded kernel IR and reports races, stray accesses and unwritten values."""
