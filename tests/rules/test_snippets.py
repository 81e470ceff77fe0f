"""The code of every fix: Python that compiles, in which every name is made, imported or one that the reader has."""

import ast
import builtins
import re

from tests import profiles

BOOK = profiles.book()
COMMANDS = "vllm|ibstat|mpirun|dcgmi|curl|torchrun|unset|ncu|numactl|nvidia-smi|export|nsys|nvidia-cuda-mps-control|pip"
SHELL = re.compile(rf"^\s*(?:# in the environment of the job|[A-Z][A-Z0-9_]*=|(?:{COMMANDS}) )", re.MULTILINE)
# What any training script has, under the names that the frameworks' own documentation gives it.
READERS = """
    model criterion loss optimizer lr loader dataset batch x y q k v params state state_dict path step features group
    layer backbone head sample_batch train_step tokens images labels grads metrics epoch log_dir on_trace_ready gpu ds
    batch_size rank local_rank device devices scheduler logger running_loss first second grads_and_vars nodes
    gpus_per_node a b n shape parse block width loss_sum correct count stages stage lengths max_tokens world_size
    length_of bucket_boundaries bucket_batch_sizes steps batches make_model pattern parse_batch run run_step decode
    sample previous stream build_model session train_op
"""
MODULES = """
    nvtx metrics torch F nn np os tf jax jnp optax ocp dist DataLoader DDP FSDP fully_shard Mesh lax partial
    DistributedDataParallel BackwardPrefetch init_device_mesh LLM CudaGraphConfig
"""
KNOWN = {*READERS.split(), *MODULES.split(), *dir(builtins)}


def snippets(rule):
    for fix in rule.fixes:
        if fix.code and fix.framework != "cuda" and not SHELL.search(fix.code):  # those are in C++
            yield re.sub(r"\{\{.*?\}\}", "4", re.sub(r"\{%.*?%\}", "", fix.code))


def test_a_snippet_compiles_and_its_names_are_known():
    for rule in BOOK.values():
        for code in snippets(rule):
            nodes = list(ast.walk(tree := ast.parse(code)))
            loaded = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
            assert loaded - made(tree) - KNOWN == set(), (rule.id, code)


def made(tree):
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    names |= {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    names |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    imports = [node for node in nodes if isinstance(node, ast.Import | ast.ImportFrom)]
    return names | {(alias.asname or alias.name).partition(".")[0] for node in imports for alias in node.names}
