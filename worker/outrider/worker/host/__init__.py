"""The machine below a worker: processors, device, and the parent process that it depends on."""
