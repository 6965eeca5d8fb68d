#!/usr/bin/env bash
# Fetches CIFAR-10 (162 MB) and writes it as data/cifar10/{train,test}_lmdb, with mean.binaryproto.
# Does nothing if they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetch.sh

if [ -f data/cifar10/mean.binaryproto ]; then # the last thing to be written
    echo "data/cifar10 is complete"
    exit
fi

fetch data/cifar10/raw/cifar-10-binary.tar.gz c32a1d4ab5d03f1284b67883e8d87530 \
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz" \
    "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/cifar-10-binary.tar.gz"
tar -xzf data/cifar10/raw/cifar-10-binary.tar.gz -C data/cifar10/raw
rm -rf data/cifar10/raw/lmdb
mkdir data/cifar10/raw/lmdb
"$PYTHON" tools/convert_cifar_data.py data/cifar10/raw/cifar-10-batches-bin data/cifar10/raw/lmdb lmdb
rm -rf data/cifar10/train_lmdb data/cifar10/test_lmdb
mv data/cifar10/raw/lmdb/cifar10_train_lmdb data/cifar10/train_lmdb
mv data/cifar10/raw/lmdb/cifar10_test_lmdb data/cifar10/test_lmdb
"$PYTHON" tools/compute_image_mean.py data/cifar10/train_lmdb data/cifar10/mean.binaryproto
