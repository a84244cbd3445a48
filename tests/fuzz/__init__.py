"""Broken and hostile exports, made from good ones by a seed."""
