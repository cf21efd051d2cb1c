"""The weights that linnet.icl.pretrained loads: diag.safetensors and full.safetensors, their recipe in their header."""
