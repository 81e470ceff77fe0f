"""Why a value is unknown: a code with the facts that its words need, and the words."""

from __future__ import annotations

import json
from typing import Final

from advisor.model.clause import Clause

REASONS: Final = {
    # what was not recorded, by format
    "no_profiler_steps": "no ProfilerStep#N marks the steps (`prof.step()` does, once per step)",
    "no_unprofiled_steps": "no step was timed without the profiler (`advisor record` does that)",
    "no_batches": "no batch of a DataLoader was looked at (`advisor record` looks at the first)",
    "few_stack_samples": "Python's stacks were sampled only {samples:count} times",
    "steps_recur": "some steps do more than the others, and the median without the profiler is that of the others",
    "unsteady_steps": (
        "the steps changed while they were recorded ({before:ms} before the recording, {during:ms} in it, {after:ms} "
        "after it)"
    ),
    "no_gpu_activity": (
        "no GPU activity was recorded, because the job ran on the CPU or ProfilerActivity.CUDA was not given"
    ),
    "kernels_not_recorded": (
        "{launches:count} launches were recorded, and no work of the device, because another profiler held CUPTI, the "
        "permission was missing, or the job ran under WSL; record it again"
    ),
    "stored_before_rule": "the run was stored before this rule; ingest its recording again",
    "no_marks": "no range marks the steps",
    "no_occupancy_estimate": "no estimate of the occupancy was recorded (CUPTI makes one, ROCm does not)",
    "no_launch_dimensions": "no launch dimensions were recorded",
    "no_cuda_calls": "no CUDA or HIP calls were recorded, so nothing links the device's work to the host",
    "no_launches_tpu": (
        "a TPU profile records no calls that launch work, so nothing links the device's work to the host"
    ),
    "no_cpu_activity": "no host activity was recorded (ProfilerActivity.CPU was not given)",
    "no_shapes": "recorded without `record_shapes=True`",
    "long_lists": (
        "PyTorch records no shapes of more than 30 tensors, and what `torch.cat` makes of such a list grows from call "
        "to call; look in the code whether the list is ever emptied"
    ),
    "no_stacks": "neither stacks nor Python calls were recorded (`with_stack=True` records them)",
    "no_device_description": "the profile does not describe its devices",
    "no_memory_profile": "recorded without `profile_memory=True`",
    "none_though_on": "`{option}` was on, but the file holds no {what}",
    "no_memory_totals": "the profiler recorded no totals of the memory in use (PyTorch before 1.10)",
    "no_collective_sizes_pytorch": "the collectives have no sizes (recorded before PyTorch 2.3)",
    "no_marked_steps_xplane": (
        "no steps are marked (tf.profiler.experimental.Trace('train', step_num=i, _r=1) and "
        "jax.profiler.StepTraceAnnotation('train', step_num=i) mark one each, and Keras' fit marks all)"
    ),
    "no_device_tracing": "no device activity was recorded, because the job ran on the CPU or device tracing was off",
    "no_occupancy_xplane": "no estimate of the occupancy was recorded (TensorFlow before 2.5, ROCm and TPUs make none)",
    "no_host_tracer": "no host activity was recorded (host_tracer_level was 0)",
    "no_shapes_xplane": "the recording has no shapes of inputs (`host_tracer_level=3` records them)",
    "no_stacks_xplane": "XPlane keeps no call stacks with ops",
    "no_reporting_allocator": "no allocator that reports to the profiler was used",
    "no_allocator_totals": "the allocator reported no totals of the memory in use",
    "viewer_copy": "the trace viewer's copy of the profile leaves it out; give the *.xplane.pb of that run",
    "no_repeating_range": (
        "no NVTX range repeats and holds the device's work as steps do; put each step in one, or name the "
        "ranges with --step-range REGEX"
    ),
    "kernels_not_exported": "kernels were launched, but the export holds none of them; export it again",
    "autograd_export": "the export of the autograd profiler does not have it; record with `torch.profiler`",
    "ops_timed": (
        "the autograd profiler timed ops on the GPU, and no kernels, so that waiting within an op is not known; record "
        "with `torch.profiler`"
    ),
    "no_launches": "CUDA was called, and no kernel was launched",
    "no_cuda_rows": (
        "the export holds no CUDA call, because the program made none, or was recorded without --trace=cuda"
    ),
    "graphs_not_traced": "CUDA graphs were recorded as a whole, not what runs in them (--cuda-graph-trace=node)",
    "no_occupancy_nsys": "Nsight Systems estimates no occupancy",
    "no_launch_dimensions_nsys": (
        "no launch dimensions were recorded (--cuda-graph-trace=node records those of CUDA graphs)"
    ),
    "no_host_activity": "no host activity was recorded",
    "no_range_shapes": "no NVTX range has shapes",
    "no_pytorch_range_shapes": "no NVTX range has shapes (--pytorch=autograd-shapes-nvtx records them)",
    "no_stacks_nsys": "Nsight Systems links no Python stack to an op",
    "no_memory_usage": "recorded without --cuda-memory-usage=true",
    "driver_memory_only": "Nsight Systems sees the driver's memory, not the framework's tensors",
    "no_nccl_payloads": "the export holds no decoded NCCL payloads",
    "no_os_calls": "recorded without --trace=osrt",
    "no_context_switches": "recorded without --cpuctxsw=process-tree",
    "no_cpu_samples": "recorded without CPU samples (--sample=process-tree)",
    "no_scheduler_reasons": "the scheduler's reasons were not recorded",
    "no_gpu_metrics": "recorded without --gpu-metrics-devices=all",
    "clocks_drift": (
        "the clocks of host and device drift apart by {drift:ms} in the recording, so no time between a call and its "
        "work is known; record it again"
    ),
    "names_not_exported": (
        "{share:percent} of the kernels' time is in kernels whose names the export does not hold; export it again"
    ),
    "unsound_times": (
        "{rows:count} of {ops:count} device ops have no sound times and are left out, so the device may work while it "
        "seems idle"
    ),
    # devices
    "no_device_used": "this worker used no device in the recording",
    "no_step_used": "no step could be used",
    "nothing_to_compute_from": "the used steps hold no data for it",
    "device_nameless": "the profile does not name the device",
    "no_capability": "the profile does not give the device's capability",
    "gpu_unknown": "it is unknown which GPU this is, and so its peak rates",
    "no_ncu": "no counters of Nsight Compute were given (--ncu)",
    "nothing_published": "nothing is published of such a job on this device",
    "peaks_unknown": "the table of GPUs has no peak rates of {name}",
    "no_sixteen_bit_tensor_cores": "the device has no Tensor Cores for 16-bit types",
    "tensor_cores_unknown": "it is unknown whether the device has Tensor Cores",
    "no_tensor_cores": "the device has no Tensor Cores",
    "kernels_untold": "the names of most kernels do not show whether they use Tensor Cores",
    "sm_count_unknown": "the number of multiprocessors of the device is unknown",
    "block_limit_unknown": "it is unknown how many blocks fit on a multiprocessor of this device",
    "memory_size_unknown": "the device's memory size is unknown",
    "pcie_rate_unknown": "the device's PCIe rate is unknown",
    # kernels
    "few_samples": "{samples:count} samples in the steps; {needed:count} are needed",
    "counters_not_sampled": "the counters for it were not sampled",
    "launching_ops_not_recorded": "the ops that launched the matrix products were not recorded",
    "flops_unknown": (
        "FLOPs are known for only {share:percent} of the time in matrix kernels (kernels in graphs, compiled kernels "
        "and those of other libraries do not show them)"
    ),
    "alignment_unknown": "neither shapes nor kernel names show how the matrices are aligned",
    "value_types_unknown": "the profile does not give the type of the values of most kernels",
    "numerical_program": (
        "the step decomposes matrices, solves linear systems, transforms to frequencies or takes gradients of "
        "gradients, and such programs may need 64 bits"
    ),
    # copies and memory
    "no_copy_sizes": "the copies have no sizes",
    "copy_direction_unknown": ("copies are open in {share:percent} of the time, and their direction was not recorded"),
    "not_this_allocator": "only the allocators of TensorFlow and JAX record it",
    "no_allocation": "the profiler recorded no tensor sizes on this device",
    "no_reserved_totals": "the recording holds no totals of reserved memory",
    # host and idle time
    "idle_cause_unknown": "{share:percent} of the time is idle, and its cause was not recorded",
    "silent_host": (
        "nothing was recorded on the host in {share:percent} of the time (it may be Python, or a wait for data, a "
        "request or a lock)"
    ),
    "result_wait": (
        "it was not recorded what is late while the host waits in `{range}` for a result and the device idles, for "
        "{share:percent} of the time"
    ),
    "thread_wait": (
        "in {share:percent} of the time the host waits in `{range}` for another thread or process, or for time to pass"
    ),
    "range_alone": (
        "in {share:percent} of the time nothing but the program's own range `{range}` was recorded on the host"
    ),
    "no_framework_op": "no framework op was recorded in these steps",
    "no_host_op": "no framework op was recorded on the host",
    "no_host_event": "no op, range or function was recorded on the host",
    "no_python_calls_tensorflow": (
        'TensorFlow records no Python calls (`with tf.profiler.experimental.Trace("metrics"):` records a part of the '
        "loop or of a Keras callback)"
    ),
    "no_python_calls_jax": (
        "no Python calls were recorded (`jax.profiler.ProfileOptions().python_tracer_level = 1` records them)"
    ),
    "no_python_calls_recorder": "no Python calls were recorded (`advisor record --stacks -- COMMAND` records them)",
    "no_python_calls_lines": "of Python only the source lines of ops were recorded (recent PyTorch records calls, too)",
    "no_python_calls_pytorch": "no Python calls were recorded (`with_stack=True` records them in recent PyTorch)",
    "no_python_calls": "no Python calls were recorded",
    "waiting_unexplained": "whether a thread waited or had no CPU core was not recorded (`--trace=osrt` records it)",
    "started_amid_work": "the recorder was started amid the work",
    "measured_by_newer_version": (
        "the run was ingested by a version that did not measure this; ingest its profile again"
    ),
    "rule_wrong": "the rule cannot be put in words: {why}",
    "failed": "advisor failed on it ({kind}); please report this",
    "out_of_memory": "there is not enough memory for it; record fewer steps, or check it on a larger machine",
    # frameworks
    "xla_frameworks_only": "TensorFlow and JAX profiles only",
    "tensorflow_only": "TensorFlow profiles only",
    "pytorch_only": "PyTorch profiles only",
    "updates_may_follow": (
        "gradients that no optimizer of the recording uses add up, so another one may update less often; record "
        "{needed:count} updates or more"
    ),
    "no_optimizer_range": "no range shows the optimizer",
    "jax_only": "JAX profiles only",
    "no_reductions": "no reduction of known type was recorded",
    "workers_unknown": "the profile does not show how many worker processes load (`advisor record` notes it)",
    "first_request_only": "one request for a batch was recorded, and worker processes start in the first",
    "no_loader": "no DataLoader of PyTorch was recorded",
    "no_tf_data": "no iterator of tf.data was recorded",
    "settings_unrecorded": "the profile does not tell the settings of libraries (`advisor record` notes a closed list)",
    "machine_unknown": "the profile does not describe the machine (`advisor record` notes its cores)",
    "eager_kernels_unknown": "the profile does not show which kernels are of eager ops",
    "no_tf_function": "no call of a tf.function was recorded",
    "no_iterators": "tf.data is used, but its iterators were not recorded (host_tracer_level was below 2)",
    "no_tf_data_wait": "no step waits for tf.data",
    # serving
    "no_engine": "no range and no code names a serving engine",
    "no_engine_steps": "neither marks nor kernels show which steps are prefill and which decode",
    "no_decode_step": "no decode step was recorded",
    "no_prefill_step": "no step that prefills was recorded",
    "no_request_counts": "the marks of the steps do not say how many requests they serve",
    "no_attention_kernel": "no kernel of fused attention was recorded",
    # ranks
    "one_rank": "1 rank was recorded, so there is no other to compare with",
    "one_device_per_rank": "no rank drives more than one device",
    "no_rank_awaited_most": "no single rank causes half of the waiting",
    "ranks_missing": (
        "only 1 rank{world:? of }{world} was recorded; to see who waits for whom, put the files of the other ranks "
        "into the same folder"
    ),
    "no_shared_collective": "no collective between ranks or devices was recorded",
    "groups_never_meet": (
        "{share:percent} of the time in collectives is in groups of ranks that never meet, so their files may be of "
        "different jobs"
    ),
    "collectives_unmatched": (
        "{share:percent} of the time in collectives could not be matched between the ranks, because their ends do not "
        "coincide"
    ),
    "no_common_step": "the ranks have no step in common",
    "several_late_ranks": "several ranks are late together",
    "few_common_steps": (
        "the ranks have {steps:count step} in common; {needed:count} or more show whether the same rank is always late"
    ),
    "few_steps": "fewer than {needed:count} steps",
    "few_shared_steps": "fewer than {needed:count} steps in which all devices of a process work",
    "world_size_unknown": "the number of ranks of the job was not recorded",
    "guest_device": "this device belongs to another rank; the process meets the other ranks on another device",
    "other_steps": "this rank recorded none of the steps that most ranks did",
    "pipeline_stages": (
        "ranks wait mostly in sends and receives; in a pipeline the slowest stage alone does not set the step"
    ),
    "different_kernels": "the ranks run different kernels, so there is nothing to compare",
    "no_kernels_on_ranks": "no rank runs a kernel on a device",
    "circular_wait": "the operations of the ranks wait for each other in a ring",
    "replay_off": "the replay of the unchanged steps is off by {share:percent}",
    "no_straggler_slowdown": "there is no slow-down by stragglers to explain",
    "first_launch_not_recorded": "the calls that launched the first kernels of the steps were not recorded",
    "no_point_to_point": "no rank sends to another",
    "peers_not_recorded": "the recording does not show which ranks exchange messages",
    # trials
    "patch_as_it_is": "the program does it already",
    "patch_compile_failed": "compiling fails ({kind}); the program ran on without",
    "patch_device_tensors": "the dataset {kind} holds tensors of a GPU, which a forked worker cannot use",
    "patch_iterable_dataset": "the dataset {kind} is an IterableDataset, and each worker would load all of it again",
    "patch_no_convolution": "the model has no convolution of images or volumes",
    "patch_no_dataset": "the program makes no dataset of tf.data that it could change",
    "patch_no_ddp": "the program makes no DistributedDataParallel",
    "patch_no_debug_aid": "no aid of debugging is on",
    "patch_no_gpu": "no GPU is in use",
    "patch_no_gradient": "the program calls no gradient outside of a jitted function",
    "patch_no_implementation": "the optimizer {kind} has no `{key}`",
    "patch_no_loader": "the program makes no DataLoader",
    "patch_no_module": "the program calls no module with parameters",
    "patch_no_optimizer": "the program makes no optimizer of PyTorch",
    "patch_no_workers": "the loader has no worker processes",
    "patch_no_tf32": "the GPU has no TF32",
    "patch_other_type": "the parameters are of type {kind}, not float32",
    "patch_own_variable": "the program sets `{name}` itself",
    "patch_own_threads": "the program calls `set_num_threads({number})` itself, at {place}",
    "patch_unpicklable": "the dataset {kind} cannot be sent to a worker process ({error})",
    "patch_unsupported_device": "the optimizer has no such implementation for parameters on {kind}",
    "patch_without_effect": "the program never did what it changes",
    "program_failed": "the program ended with exit code {code}: {line}",
    "no_step_ended": (
        "no step ended, because no optimizer stepped and no model or jitted function was called often enough"
    ),
    "run_cut": "no step ended in the {limit:ms} of the run; give more time with `--budget`, or make the steps smaller",
    "no_step_recorded": "nothing was recorded (`advisor record -- COMMAND` says why)",
    "too_few_pairs": "only {pairs} of {needed:count} pairs were timed; give more time with `--budget`",
    "program_short": "the program ends before it has been timed with and without the patch; let it run longer",
    "budget_spent": "it needs {needed:ms} at least, and {remaining:ms} were left; give more time with `--budget`",
    "tried_already": "it makes the same change as {name}, which was tried",
    "cores_busy": (
        "other programs kept the cores busy for {share:percent} of the time, so the program's threads sleep when they "
        "wait for each other; all runs have `OMP_WAIT_POLICY=passive`"
    ),
    # communication
    "no_collective_on_device": "no collective ran on this device in the steps used",
    "backend_unknown": "the backend was not recorded",
    "sizes_partly_missing": "{missing:count} of {collectives:count} collectives have no size",
    "no_overlap_sample": "no kernel ran three times beside a collective and three times alone",
    "no_collective_sizes": "the collectives have no sizes",
    "no_measured_curve": "the hardware table has no measured curve for these groups",
    "no_large_collective": "no collective has 4 MiB or more, and the start-up time of a smaller one hides the link",
    "no_collective_large_enough": "no collective is large enough to measure the link",
    "transfer_and_waiting": (
        "waiting for late ranks cannot be separated from the transfer, because too few calls of the ranks match "
        "({here:count} of {world} ranks recorded); the shortest calls reach {share:percent} of what the links allow"
    ),
    "broadcast_launch_not_recorded": "the calls that launched the broadcasts were not recorded",
    "groups_not_recorded": "the recording lacks the ranks of each group, or the number of GPUs per host",
    "no_pairs_of_known_size": "no pairs of ranks with messages of known size, so links cannot be compared",
    "operation_unknown": "the collective's operation is unknown",
    "barrier": "a barrier moves no data",
    "group_size_unknown": "the size of the group is not recorded",
    "group_of_one": "a group of one moves no data",
    "placement_unknown": "it is unknown whether the group lies on one node",
    "spans_nodes": "the group spans nodes, and their network is not in the profile",
    "gpu_unknown_link": "it is unknown which GPU this is, and so what links it",
    "no_size": "the collective has no size",
    "links_of_variants": "it is unknown which variant of the {model} this is, and so what links it",
    "no_ring_bandwidth": "the table has no ring bandwidth of the {model}",
    "wired_in_pairs": (
        "boards of {board:count} {model} are wired pair by pair, and the link between {size:count} of them is not "
        "recorded"
    ),
    "geforce_link": "GeForce cards reach each other through the host's memory, at an unknown rate",
    "no_link": "the table has no link between {model}s",
    "no_point_to_point_model": "NCCL has no model of operations made of point-to-point transfers",
}
"""Why a number is unknown; see `clause.words` for names in braces."""


class Missing(Clause):
    """A value that is unknown, and why: a code of `REASONS` with its facts."""

    sentences = REASONS

    @property
    def words(self) -> str:
        """A clause without a full stop; of a file that ends early, that the value may be lost with its end."""
        return super().words + " (or lost: the file ends early)" * ("cut_off" in self.values)

    @classmethod
    def of_failure(cls, kind: str) -> Missing:
        """The value that a bug, an exception of this kind, kept from being computed."""
        return cls("out_of_memory") if kind == MemoryError.__name__ else cls("failed", kind=kind)

    @property
    def encoded(self) -> str:
        """The value as text, for a column of a table; see `decoded`."""
        return json.dumps([self.code, self.values])

    @classmethod
    def decoded(cls, text: str) -> Missing:
        """The value that `encoded` wrote."""
        code, facts = json.loads(text)
        return cls(code, **facts)
