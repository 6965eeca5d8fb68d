# For the get_*.sh scripts, which source it: fetching with checksums.

# The Python of the checkout's virtual environment, if there is one.
PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}

checksum_is() { # FILE MD5
    [ "$("$PYTHON" -c 'import hashlib, sys; print(hashlib.md5(open(sys.argv[1], "rb").read()).hexdigest())' "$1")" = "$2" ]
}

download() { # URL FILE
    if command -v curl > /dev/null; then
        curl --fail --location --show-error --connect-timeout 20 --retry 2 --output "$2" "$1"
    elif command -v wget > /dev/null; then
        wget --timeout=20 --tries=3 --output-document="$2" "$1"
    else
        echo "error: neither curl nor wget is installed" >&2
        exit 2
    fi
}

# Fetches FILE from the first URL that gives it with the right sum. Does nothing if it is there already.
fetch() { # FILE MD5 URL...
    local file=$1 sum=$2 url
    shift 2
    if [ -f "$file" ] && checksum_is "$file" "$sum"; then
        return
    fi
    mkdir -p "$(dirname "$file")"
    for url in "$@"; do
        echo "fetching $url"
        if download "$url" "$file.part" && checksum_is "$file.part" "$sum"; then
            mv "$file.part" "$file"
            return
        fi
        echo "warning: $url gave no file with the MD5 sum $sum" >&2
        rm -f "$file.part"
    done
    echo "error: $file could not be fetched; get it in another way, put it there, and run this again" >&2
    exit 1
}
