"""The one way a call goes: arguments are bound, a plan is made once, and run as a compiled call."""
