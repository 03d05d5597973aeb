"""Does the jobs of jobs.txt."""
import tools

with open("jobs.txt") as f:
    for line in f:
        name, *numbers = line.split()
        name = tools.ALIASES.get(name, name)
        job = getattr(tools, name, None) or getattr(tools, "job_" + name)
        print(name, job([float(n) for n in numbers]))
