"""The numbers that stand in `fuser/schedule`, beside plain ones: what each of them counts, by its unit (`test_machine.UNITS`).

None of them is a time, a rate or a capacity of a GPU: those are in `DeviceInfo`. `-` are numbers within functions.
"""

NUMBERS: dict[str, dict[str, str]] = {
    "analysis/reference.py": {
        "elements": "-",
    },
    "cost/co_resident_rows.py": {
        "cycles": "OF_THREAD",
    },
    "cost/columns_model.py": {
        "cycles": "OF_NEXT_ROW OF_DOUBLE_PAIRS OF_ROW OF_DOUBLES OF_SHARED",
        "instructions": "JOIN SUM_UP DOUBLE",
        "share": "TWO_KERNELS_RATE MANY_BY_ELEMENT EXACT WORTH RELATIVE MARGIN SIDE_BY_SIDE_RATE DOUBLE_PAIRS_RATE "
        "BY_ELEMENT HIDDEN",
        "threads": "THREADS_OF_DOUBLES",
        "registers": "FOR_EACH",
        "elements": "SHARED_BYTES",
    },
    "cost/gradient_rows.py": {
        "share": "RATE -",
        "cycles": "EACH_ROW LEAST_ROW",
        "threads": "THREADS",
    },
    "cost/latency_bound_rows.py": {
        "cycles": "CUT_ELEMENT ELEMENT SINGLE_ELEMENT ALONE_ELEMENT ALONE_BYTE ONCE TWICE WARP_TWICE",
        "share": "RATE_OF_SEVERAL CLUSTER_IN_TURN LEAST_GAIN LEAST_ALONE LEAST_OF_CLUSTER",
    },
    "cost/peeled_rows.py": {
        "registers": "LEAST_REGISTERS_BESIDE",
        "threads": "WANTED_THREADS WANTED_THREADS_BESIDE WANTED_THREADS_WIDE WANTED_THREADS_FUNNEL_SHIFTED",
        "elements": "SHORT_BYTES LEAST_BYTES LEAST_BYTES_BESIDE",
        "share": "WANTED_IN_FLIGHT ALL_WAIT TESTED ALONE SHARED CLUSTER AT_ONCE FUNNEL_SHIFTED_AT_ONCE",
    },
    "cost/plan_columns.py": {
        "exchanges": "_TURNS _TURNS_OF_HEAVY",
        "threads": "_MOST_PARTS",
    },
    "cost/plan_reduction.py": {
        "elements": "_LEAST_POSTED",
    },
    "cost/row_shapes.py": {
        "registers": "LARGE_THREAD",
        "share": "ALONE CLUSTER_STEP",
    },
    "cost/rows_in_shared.py": {
        "share": "WANTED_IN_FLIGHT ALONE CLUSTER CLUSTER_STEP FEW_ACCESSES",
        "threads": "HIDING_THREADS",
    },
    "cost/rows_model.py": {
        "registers": "SAFE_REGISTERS",
        "threads": "SUMMING_BLOCKS",
        "share": "ISSUED MEMORY_RATE PARTS_RATE",
        "cycles": "DEPENDENT OF_COLUMN JOIN_LATENCY",
        "instructions": "OPERATION ACCESS ALONE JOIN THROUGH_SHARED OF_TRIP",
        "power": "OF_LIMITS OF_MEMORY -",
    },
    "cost/rows_over_grid.py": {
        "cycles": "EASY_ACCESS ACCESS HARD_ACCESS OF_DOUBLE_THREAD",
        "share": "WORTH LEAST_GAIN",
        "elements": "LEAST_ELEMENTS",
        "threads": "THREADS",
    },
    "cost/scan_model.py": {
        "registers": "STEP_REGISTERS ONCE_REGISTERS",
    },
    "cost/scratch_budget.py": {
        "elements": "BESIDE_COLUMNS",
    },
    "neighbours.py": {
        "elements": "-",
    },
    "schedulers/chained_reduction.py": {
        "threads": "MOST_BLOCKS STREAMED_BLOCKS",
        "elements": "LONG",
    },
    "schedulers/inner_outer_persistent.py": {
        "share": "SURE",
        "elements": "LEAST_APART",
    },
    "schedulers/inner_persistent.py": {
        "share": "MOVING_DOUBLES -",
    },
    "schedulers/outer_persistent.py": {
        "threads": "BLOCKS",
    },
    "schedulers/pointwise.py": {
        "share": "LEAST_USED SHARED_LEFT",
    },
    "schedulers/reduction.py": {
        "elements": "_LITTLE",
        "share": "_READ_RATE",
        "cycles": "_DIVISION_ALONE _ENDS",
    },
    "schedulers/scan.py": {
        "elements": "_STEP_BYTES",
    },
}
