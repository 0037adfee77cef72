"""The CUDA path: Triton kernels over packed rows. Imported only where triton is installed."""
