"""The servers that a topology means: those under its `connect`, or its running lab."""
