#!/bin/bash
# An elastic training on one to four nodes of Slurm; see docs/slurm-elastic.md.
#     sbatch examples/slurm_elastic.sh        from this repository, on a shared file system
#SBATCH --job-name=elastic-images
#SBATCH --nodes=1
#SBATCH --gres=gpu:1
#SBATCH --open-mode=append
#SBATCH --comment=rota:elastic=yes,max_nodes=4,checkpointable=yes,model=images
exec rota elastic-run -- python examples/elastic_images.py 500
