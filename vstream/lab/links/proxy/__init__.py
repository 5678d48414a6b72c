"""The link proxy: a process of its own, in front of every server of a lab, that makes links between regions."""
