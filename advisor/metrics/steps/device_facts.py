"""Facts of the device that rules ask for, and how the worker spreads its work over devices."""

from advisor.analysis.device.view import DeviceView
from advisor.metrics.metric import of_devices
from advisor.model.missing import Missing
from advisor.text import runs_of


def _name(view: DeviceView) -> str | Missing:
    """As recorded; a name that is empty is replaced by the model that its figures tell."""
    return view.facts.get("name") or (view.gpu.model if view.gpu else None) or Missing("device_nameless")


of_recording = of_devices(__name__, needs_steps=False)
of_recording("device_name", _name, unit="text", needs=("device_ops",)).says(
    "Name of the device as its driver reports it.", "as recorded"
)
of_recording(
    "capability", lambda view: view.facts.get("capability") or Missing("no_capability"), needs=("device_ops", "devices")
).says("CUDA compute capability; on AMD the gfx version.", "major + minor / 10, as recorded")
of_recording("gpu_listed", lambda view: int(view.gpu is not None), unit="count").says(
    "Whether the hardware table has this GPU: 0 where only its compute capability tells what it can do.",
    "1 if it is certain which entry of the table it is, else 0",
)
of_recording("program_error", lambda view: str(view.process.get("error") or ""), unit="text").says(
    "The error that ends what the program printed to its standard error, without secrets.",
    "the first of its last five lines that names an exception, a signal or a missing file, as Nsight Systems keeps it",
)
of_recording("driver_wait_ms", lambda view: (view.process.get("driver_wait_ns") or 0) / 1e6).says(
    "How long the program has waited in the driver for one call when the recording ends.",
    "time in which its only calls of the operating system are waits, three by the driver or more, as Nsight Systems "
    "records them",
)
of_recording("devices_used", lambda view: view.devices, unit="count").says(
    "Devices that the worker ran anything on.", "number of devices with device ops"
)

measure = of_devices(__name__)
measure(
    "devices_visible",
    lambda view: Missing("no_device_description") if view.visible is None else view.visible,
    unit="count",
).says(
    "Devices that the worker's process sees.",
    "devices that the profile describes",
    "XProf's overview page, run environment",
)
measure("visible_devices", lambda view: ", ".join(view.visible_names), unit="text").says(
    "What the devices are called that the worker's process sees.", "as recorded"
)
measure("devices_working", lambda view: runs_of(view.working), unit="text").says(
    "The devices on which the worker's process ran kernels.", "numbers of the devices with kernels"
)
measure(
    "devices_idle",
    lambda view: Missing("no_device_description") if view.visible is None else view.visible - len(view.used),
    unit="count",
).says(
    "How many of the devices that the worker's process sees it ran nothing on.",
    "devices_visible - devices with any op, copies too",
)
