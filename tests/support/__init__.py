"""What a machine without a GPU needs to judge generated CUDA C++.

`stub_driver` lets cuda.compute build with no driver, `host_cpp` runs device functions on the host,
`nvrtc` compiles kernels to machine code and reads the compiler's resource report.
"""
