"""nsysacct: an honest account of speculative decoding from Nsight Systems exports."""

__version__ = "0.1.0"
