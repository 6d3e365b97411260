"""Prices are facts with a source and a date; a bad list is refused where it is bad."""

from __future__ import annotations

import gzip
import math
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.core import Cluster
from rota.errors import InputError, UnknownNameError
from rota.perf.physics import Billing
from rota.perf.price import Price, fee, load_prices, price_of, with_prices

if TYPE_CHECKING:
    from pathlib import Path

HEADER = "cloud,gpu_type,on_demand_usd_per_gpu_h,spot_usd_per_gpu_h,source,date"


def test_the_shipped_list_has_a_source_and_a_date_for_every_price() -> None:
    prices = load_prices()

    assert 15 <= len(prices) <= 25
    assert all(row.source and len(row.date.split("-")) == 3 for row in prices)
    assert len({(row.cloud, row.gpu_type) for row in prices}) == len(prices)
    assert {"K80", "P100", "V100", "T4", "A10G", "A100", "H100"} <= {r.gpu_type for r in prices}


def test_prices_known_by_heart() -> None:
    assert price_of("V100") == 3.06
    assert price_of("P100") == 1.46  # aws has none; gcp is the next that does
    assert price_of("v100", cloud="gcp") == 2.48
    assert price_of("k80", spot=True) == 0.27


def test_spot_skips_clouds_without_spot_prices() -> None:
    prices = (
        Price("first", "V100", 3.0, math.nan, "2025-01-01"),
        Price("second", "V100", 4.0, 1.0, "2025-01-01"),
    )

    assert price_of("V100", prices) == 3.0
    assert price_of("V100", prices, spot=True) == 1.0
    with pytest.raises(InputError, match="no spot price of 'V100' at first"):
        price_of("V100", prices, cloud="first", spot=True)


def test_the_newest_lines_count_and_their_median_is_taken() -> None:
    prices = [Price("aws", "T4", dollars, 0.1, "2025-01-01") for dollars in (1.0, 2.0, 9.0)]
    prices.append(Price("aws", "T4", 50.0, 0.1, "2022-01-01"))

    assert price_of("T4", prices) == 2.0


def test_unknown_names_come_with_a_suggestion() -> None:
    with pytest.raises(UnknownNameError, match=r"'V10'.*Did you mean 'V100'"):
        price_of("V10")
    with pytest.raises(UnknownNameError, match=r"No cloud is called 'awz'.*'aws'"):
        price_of("V100", cloud="awz")
    with pytest.raises(UnknownNameError, match="price list of lambda"):
        price_of("K80", cloud="lambda")


def test_each_node_gets_the_price_of_its_gpus() -> None:
    cluster = Cluster(
        gpus=np.array([8, 4, 4]), gpu_types=("V100", "unused", "k80"), type=np.array([0, 2, 0])
    )

    priced = with_prices(cluster)

    assert priced.price_per_gpu_h.tolist() == [3.06, 0.9, 3.06]
    assert priced.names == cluster.names
    assert with_prices(cluster, spot=True).price_per_gpu_h[1] == 0.27
    assert cluster.price_per_gpu_h.tolist() == [0, 0, 0]


def test_a_cluster_of_an_unpriced_type_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="'gpu'"):
        with_prices(Cluster.uniform(2))


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("aws,V100,-1,0.5,here,2025-01-01", "row 3, column 'on_demand_usd_per_gpu_h': '-1'"),
        ("aws,V100,0,0.5,here,2025-01-01", "row 3, column 'on_demand_usd_per_gpu_h': '0'"),
        ("aws,V100,3,inf,here,2025-01-01", "row 3, column 'spot_usd_per_gpu_h': 'inf'"),
        ("aws,V100,3,nan,here,2025-01-01", "row 3, column 'spot_usd_per_gpu_h': 'nan'"),
        ("aws,V100,three,,here,2025-01-01", "row 3, column 'on_demand.*'three' is not a number"),
        ("aws,,3,0.5,here,2025-01-01", "row 3, column 'gpu_type': '' must not be empty"),
        ("aws,V100,3", "row 3: There are 3 cells for 6 columns"),
    ],
)
def test_a_bad_row_is_refused_by_file_row_and_column(
    tmp_path: Path, row: str, complaint: str
) -> None:
    file = tmp_path / "list.csv"
    file.write_text(f"{HEADER}\naws,T4,1,0.5,here,2025-01-01\n{row}\n")

    with pytest.raises(InputError, match=f"list.csv, {complaint}"):
        load_prices(file)


def test_files_that_are_no_price_list_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: The price list cannot be read"):
        load_prices(tmp_path / "none.csv")
    other = tmp_path / "other.csv"
    other.write_text("job_id,num_gpus\n1,2\n")
    with pytest.raises(InputError, match="job_id, num_gpus are those of no price list"):
        load_prices(other)
    cut = tmp_path / "cut.csv.gz"
    cut.write_bytes(gzip.compress(HEADER.encode())[:-9])
    with pytest.raises(InputError, match=r"cut\.csv\.gz"):
        load_prices(cut)


def test_hosts_are_priced_per_gpu(tmp_path: Path) -> None:
    file = tmp_path / "hosts.csv"
    file.write_text(
        "cloud,snapshot_date,InstanceType,Region,vcpus,mem_gib,price_usd_h,spot_usd_h\n"
        "gcp,2026-08-21,a2-highgpu-8g,us-central1,96,680,8.0,4.0\n"
        "gcp,2026-08-21,g2-standard-48,us-central1,48,192,2.0,\n"
        "gcp,2026-08-21,a3-ultragpu-8g-nolssd,us-central1,224,2952,0.0,0.0\n"
    )

    hosts = load_prices(file)

    assert [(h.gpu_type, h.on_demand_usd_per_gpu_h) for h in hosts] == [
        ("A100", 1.0), ("L4", 0.5), ("H200", 0.0),
    ]  # fmt: skip
    with file.open("a") as more:
        more.write("gcp,2026-08-21,n2-standard-8,us-central1,8,32,1.0,\n")
    with pytest.raises(InputError, match="row 5, column 'InstanceType': 'n2-standard-8'"):
        load_prices(file)


@pytest.mark.logs
def test_the_full_lists_can_be_read_and_bear_out_the_shipped_one(logs: Path) -> None:
    price_files = logs / "prices"
    full = load_prices(price_files / "cloud_gpu_prices.csv.gz")
    assert len(full) == 2689
    assert len(load_prices(price_files / "headline_us_prices.csv")) == 60
    assert len(load_prices(price_files / "gcp_gpu_host_prices.csv.gz")) == 351

    for row in load_prices():
        region = row.source.split("; ")[1]
        same = [r for r in full if (r.cloud, r.gpu_type, r.date, r.region)
                == (row.cloud, row.gpu_type, row.date, region)]  # fmt: skip
        on_demand = median(r.on_demand_usd_per_gpu_h for r in same)
        spot = median(r.spot_usd_per_gpu_h for r in same)
        np.testing.assert_allclose(
            (row.on_demand_usd_per_gpu_h, row.spot_usd_per_gpu_h), (on_demand, spot), atol=5e-5
        )
        assert not any(
            (r.cloud, r.gpu_type, r.region) == (row.cloud, row.gpu_type, region)
            and r.date > row.date
            for r in full
        )


def test_a_fee_worked_out_by_hand() -> None:
    # 61 s on 4 GPUs at 3.60 $/h each: 61 s × 4 × 0.001 $/s.
    stint = (100.0, 161.0, 4, 3.6)

    assert fee([stint], Billing()) == pytest.approx(0.244)
    assert fee([stint], Billing(grain_s=60)) == pytest.approx(0.48)  # two minutes begun
    assert fee([stint, stint], Billing(grain_s=60)) == pytest.approx(0.96)  # rounded one by one
    assert fee([], Billing()) == 0


def test_a_minute_that_is_long_by_rounding_only_is_one_minute() -> None:
    assert fee([(0.1 + 0.2, 60.3, 1, 60.0)], Billing(grain_s=60)) == pytest.approx(1.0)
    assert fee([(0.3, 60.1 + 0.2 + 1e-9, 1, 60.0)], Billing(grain_s=60)) == pytest.approx(1.0)


stints = st.lists(
    st.tuples(st.floats(0, 1e5), st.floats(0, 1e5), st.integers(0, 64), st.floats(0, 100)).map(
        lambda t: (min(t[:2]), max(t[:2]), t[2], t[3])
    )
)


@given(stints, st.sampled_from([1.0, 60.0, 3600.0]))
def test_a_coarser_grain_never_costs_less_and_at_most_one_grain_more(
    stints: list[tuple[float, float, float, float]], grain_s: float
) -> None:
    exact = sum((end - start) * gpus * price / 3600 for start, end, gpus, price in stints)
    coarse = fee(stints, Billing(grain_s=grain_s))
    grain = sum(grain_s * gpus * price / 3600 for _, _, gpus, price in stints)

    assert exact - 1e-6 * grain - 1e-9 <= coarse <= exact + grain + 1e-9
