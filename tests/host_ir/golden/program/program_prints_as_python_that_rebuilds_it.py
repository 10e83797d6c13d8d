HostProgram(
    inputs=('x', 'n'),
    outputs=('z', 'x'),
    instructions=(
        Allocate('y', (extent('x', 0),), DataType.Float),
        LaunchKernel(kernels["add_one_01234567"], ('x', 'y')),
        Allocate('z', (extent('x', 0), 2), DataType.Float, (1, extent('x', 0))),
        Fill('z', float('inf')),
        Alias('column', 'z', (extent('x', 0),), strides=(1,), offset=extent('x', 0)),
        Copy('column', 'y'),
        Deallocate('y'),
        LaunchKernel(kernels["add_one_01234567"], ('column', 'x'), LaunchParams(-1, -1, -1, 128, 1, 1)),
    ),
)
