"""Window functions over sorted rows of partitions: values of other rows, aggregates of frames.

``kernels`` has the compiled parts, ``frames`` the limits of frames, ``values`` the functions.
"""
