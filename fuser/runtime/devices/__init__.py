"""Devices: memory, copies, streams, launches and graphs.

A CUDA device
    cuda_device.py               the device; the simulator is the other one. cuda_launches.py, cuda_binaries.py,
                                 cuda_device_info.py: what launching, loading and asking take
    cuda_graphs.py, cuda_switches.py   CUDA graphs of explicit nodes; graph_device.py is what they ask of the device
    early_launches.py            which launches start before those before them have ended

Work on any device
    run_commands.py, strided_copy.py, host_bytes.py   commands one by one; copies between layouts; bytes read back
    streams.py, side_streams.py  order between streams, and what must live until work is done

What a device must do
    device.py                    the protocol, and the registry of devices by name
"""
