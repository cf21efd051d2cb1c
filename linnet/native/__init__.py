"""The compiled kernels: the only folder that knows a shared library exists.

    build.py    compile csrc/ into _linnet.so            library.py   load it and compare it with structs.py
    abi.py      how a struct is declared                 structs.py   every struct of the ABI, by names
    call.py     call a function by the names of fields   gate.py      tensors to addresses, and LINNET_CHECK
    linear_attention.py, nn.py, matmul.py, sample.py, icl.py, decode.py   the kernels, on tensors

docs/decisions/0032-the-c-abi-by-names.md says how to add a kernel.
"""
