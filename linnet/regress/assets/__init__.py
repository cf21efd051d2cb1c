"""The weights that linnet.regress.pretrained loads, as safetensors; each file has its recipe in its header."""
