"""Values of window functions over sorted rows of partitions; frames.

``kernels`` has the compiled parts, ``frames`` the limits of frames, ``values`` the functions.
"""
