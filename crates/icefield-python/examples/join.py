"""Join a batch of rows with an index that was built before."""

import tempfile

import icefield

with tempfile.TemporaryDirectory() as directory:
    customers = ["Ann", "Bob", "Eve"]
    icefield.JoinIndex.build(directory + "/customers.ice", keys=[101, 102, 103]).close()
    with icefield.JoinIndex.open(directory + "/customers.ice", mode="r") as index:
        orders = [102, 999, 101, 102]
        positions, rows = index.join(orders)
        for position, row in sorted(zip(positions.tolist(), rows.tolist(), strict=True)):
            print(f"order {position}: {customers[row]}")
