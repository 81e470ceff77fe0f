"""What the other tools do with a trace, started with the Python of their own environment: peers.py NAME TRACE.

traceinsight takes a folder of one trace per rank too.
"""

import sys
import tempfile
from pathlib import Path


def traceinsight(trace: str) -> None:
    """Holistic Trace Analysis: load, then the analyses that a check needs too."""
    from hta.trace_analysis import TraceAnalysis  # noqa: PLC0415 - each tool alone in its process

    files = sorted(Path(trace).glob("*.json.gz")) if Path(trace).is_dir() else [trace]
    analysis = TraceAnalysis(trace_files={rank: str(file) for rank, file in enumerate(files)}, trace_dir="")
    analysis.get_temporal_breakdown(visualize=False)
    analysis.get_idle_time_breakdown(visualize=False)
    analysis.get_gpu_kernel_breakdown(visualize=False)
    analysis.get_comm_comp_overlap(visualize=False)
    analysis.get_cuda_kernel_launch_stats(visualize=False)
    analysis.get_queue_length_summary()


def torch_tb_profiler(trace: str) -> None:
    """PyTorch's TensorBoard plugin: parse one worker's file and generate its views."""
    from torch_tb_profiler.profiler.data import RunProfileData  # noqa: PLC0415
    from torch_tb_profiler.profiler.run_generator import RunGenerator  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as cache:
        RunGenerator("worker", None, RunProfileData.parse("worker", None, trace, cache)).generate_run_profile()


def xprof(trace: str) -> None:
    """XProf: the overview page of one host; what it writes beside the profile for a second time is thrown away."""
    from xprof.convert import raw_to_tool_data  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "plugins/profile/run/host.xplane.pb")
        profile.parent.mkdir(parents=True)
        profile.symlink_to(trace)
        page, _ = raw_to_tool_data.xspace_to_tool_data([str(profile)], "overview_page", {"use_saved_result": False})
        if not page:
            sys.exit(f"xprof made no page of {trace}")


if __name__ == "__main__":
    tools = {"traceinsight": traceinsight, "torch-tb-profiler": torch_tb_profiler, "xprof": xprof}
    tools[sys.argv[1]](sys.argv[2])
