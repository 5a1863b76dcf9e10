"""Drivers of Blackhole cards through blackhole-py, a module for each version of its API, named by year and month.

blackhole-py is not imported here. A program hands over the names that its own copy has:

    import device, dispatch
    api = SimpleNamespace(Device=device.Device, Program=dispatch.Program, CBConfig=dispatch.CBConfig)
    mesh = open_mesh_device((1, 2), drivers=march_cards(api, identify))
"""
