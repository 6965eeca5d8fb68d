#!/usr/bin/env bash
# Fetches MNIST (11 MB) and writes it as data/mnist/{train,test}_lmdb. Does nothing if they are there.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/fetch.sh

if [ -d data/mnist/train_lmdb ] && [ -d data/mnist/test_lmdb ]; then
    echo "data/mnist is complete"
    exit
fi

get() { # NAME MD5
    fetch "data/mnist/raw/$1" "$2" \
        "https://ossci-datasets.s3.amazonaws.com/mnist/$1" \
        "https://storage.googleapis.com/cvdf-datasets/mnist/$1" \
        "http://yann.lecun.com/exdb/mnist/$1"
}
get train-images-idx3-ubyte.gz f68b3c2dcbeaaa9fbdd348bbdeb94873
get train-labels-idx1-ubyte.gz d53e105ee54ea40749a09fcbcd1e9432
get t10k-images-idx3-ubyte.gz 9fb629c4189551a2d022fa330f9573f3
get t10k-labels-idx1-ubyte.gz ec29112dd5afa0611ce80d1b7f02629c

convert() { # PART LMDB
    [ -d "data/mnist/$2" ] || "$PYTHON" tools/convert_mnist_data.py \
        "data/mnist/raw/$1-images-idx3-ubyte.gz" "data/mnist/raw/$1-labels-idx1-ubyte.gz" "data/mnist/$2"
}
convert train train_lmdb
convert t10k test_lmdb
