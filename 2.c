END rounds=10190 binds=0 listens=0 answers=0
