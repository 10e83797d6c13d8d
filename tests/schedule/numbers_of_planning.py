"""The numbers that stand in `fuser/schedule`, beside plain ones: what each of them counts, by its unit (`test_machine.UNITS`).

None of them is a time, a rate or a capacity of a GPU: those are in `DeviceInfo`. `-` are numbers within functions.
"""

NUMBERS: dict[str, dict[str, str]] = {
    "cost/code_costs.py": {
        "instructions": "OPERATION ACCESS JOIN ROW",
        "cycles": "LOOKUP LOADED WHOLE_ROW STATISTICS_STEP WARP_JOINS",
        "share": "BLOCK_EXCHANGE",
    },
    "cost/estimate.py": {
        "power": "LIMITS_NORM",
        "share": "OWN_TRANSFER - CLOSE ROUNDING",
    },
    "cost/inner_outer_mappings.py": {
        "threads": "SUMMING_BLOCKS",
    },
    "cost/mapping_search.py": {
        "elements": "MAX_REMEMBERED",
    },
    "cost/pointwise_mappings.py": {
        "share": "KEPT",
    },
    "cost/pointwise_space.py": {
        "elements": "ANYWHERE",
    },
    "cost/transpose_mappings.py": {
        "instructions": "TURNED",
    },
    "cost/pointwise_work.py": {
        "instructions": "THREAD ITERATION ACCESS UNALIGNED DIVISION",
        "cycles": "BLOCK_CYCLES LOADED STORED",
        "share": "AGAIN HELD EVEN_EDGES ITERATED",
    },
    "cost/reduction_mappings.py": {
        "instructions": "CUT",
        "exchanges": "CLUSTER_EXCHANGE COUNTED",
        "share": "EVEN_EDGES BUSY",
    },
    "cost/reduction_space.py": {
        "elements": "_LITTLE",
        "share": "_READ_RATE",
        "cycles": "_DIVISION_ALONE _ENDS",
    },
    "cost/row_mappings.py": {
        "instructions": "CUT CUT_IN_SHARED ONLINE",
        "share": "AGAIN IN_SHARED CACHE_MISSES",
        "cycles": "CUT_ACCESS PIECE",
        "elements": "MIN_OF_GROUP",
    },
    "cost/scan_mappings.py": {
        "instructions": "TESTED DIVIDED FOLDS TOTAL SLOT STEP CUT",
        "cycles": "SLOT_LATENCY",
    },
    "cost/scratch_budget.py": {
        "elements": "BESIDE_COLUMNS",
    },
    "tuning_candidates.py": {
        "elements": "-",
    },
    "schedulers/chained_reduction.py": {
        "threads": "MAX_BLOCKS STREAMED_BLOCKS",
        "elements": "LONG",
    },
    "schedulers/outer_persistent.py": {
        "threads": "BLOCKS",
    },
}
