"""What the machine and the installation give: memory, processes, threads of polars, shipped files."""
